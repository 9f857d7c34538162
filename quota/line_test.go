package quota

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// drain serves the whole line and returns the order.
func drain(l *line, weights map[string]float64) string {
	var order []string
	for w := l.head(); w != nil; w = l.head() {
		l.remove(w)
		l.serve(w.tenant.name, w.tokens, weights[w.tenant.name])
		order = append(order, fmt.Sprintf("%s%d", w.tenant.name, w.tokens))
	}
	return strings.Join(order, " ")
}

func TestLineOrder(t *testing.T) {
	for _, tc := range []struct {
		name   string
		b      float64 // weight of tenant b; a has 1
		served string  // before anybody waits
		push   string
		want   string
	}{
		{"first come, first served inside a tenant", 1, "", "a3 a1 a2", "a3 a1 a2"},
		{"equal tenants alternate", 1, "", "a1 a1 a1 b1 b1 b1", "a1 b1 a1 b1 a1 b1"},
		{"tokens count, not requests", 1, "", "a4 a4 b1 b1 b1 b1 b1", "a4 b1 b1 b1 b1 a4 b1"},
		{"a weight of two gets two for one", 2, "", "a1 a1 a1 b1 b1 b1 b1", "a1 b1 b1 a1 b1 b1 a1"},
		{"what was used alone is not held against a tenant", 1, "a1 a1 a1 a1 a1 a1", "a1 a1 b1 b1", "b1 a1 b1 a1"},
		{"idling earns no credit", 1, "b1 a1 a1 a1 a1", "a1 a1 b1 b1 b1", "b1 a1 b1 a1 b1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			weights := map[string]float64{"a": 1, "b": tc.b}
			l := newLine()
			for _, f := range strings.Fields(tc.served) {
				l.serve(f[:1], int(f[1]-'0'), weights[f[:1]])
			}
			for _, f := range strings.Fields(tc.push) {
				l.push(f[:1], &waiter{tokens: int(f[1] - '0')})
			}
			if got := drain(&l, weights); got != tc.want {
				t.Errorf("order of %q = %q, want %q", tc.push, got, tc.want)
			}
			if l.waiting != 0 || l.tokens != 0 {
				t.Errorf("waiting, tokens = %d, %d, want 0, 0", l.waiting, l.tokens)
			}
		})
	}
}

func TestLineCancelledWaiterLeavesNoTrace(t *testing.T) {
	weights := map[string]float64{"a": 1, "b": 1, "c": 1}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		with, without := newLine(), newLine()
		var cancel []*waiter
		for range 20 {
			name, tokens := string("abc"[rnd.IntN(3)]), 1+rnd.IntN(9)
			w := &waiter{tokens: tokens}
			with.push(name, w)
			if rnd.IntN(3) == 0 {
				cancel = append(cancel, w)
				continue
			}
			without.push(name, &waiter{tokens: tokens})
		}
		for _, i := range rnd.Perm(len(cancel)) {
			with.remove(cancel[i])
		}
		if diff := cmp.Diff(drain(&without, weights), drain(&with, weights)); diff != "" {
			t.Fatalf("order with cancelled waiters differs (-without +with):\n%s", diff)
		}
	}
}

func TestLineForgetsTenants(t *testing.T) {
	l := newLine()
	for i := range 100_000 {
		l.serve(fmt.Sprint("once-", i), 10, 1)
		l.serve("busy", 10, 1)
	}
	if got, want := len(l.tenants), 2*minSweep; got > want {
		t.Errorf("len(tenants) = %d, want at most %d", got, want)
	}
}

func TestLineKeepsCountingAfterManyTokens(t *testing.T) {
	weights := map[string]float64{"a": 1, "b": 1}
	l := newLine()
	for range 100 {
		l.serve("a", maxCap, 0.001)
	}
	if l.virtual > rebaseAt {
		t.Errorf("virtual = %g, want at most %g", l.virtual, float64(rebaseAt))
	}
	l.serve("b", 1, 1)
	for range 3 {
		l.push("b", &waiter{tokens: 1})
	}
	if got, want := drain(&l, weights), "b1 b1 b1"; got != want {
		t.Errorf("order = %q, want %q", got, want)
	}
}
