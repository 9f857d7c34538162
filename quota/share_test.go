package quota_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/quota"
)

// ramp is a share whose cap changes at given seconds.
type ramp struct {
	start time.Time
	caps  []int         // caps[i] holds from i*every
	every time.Duration // zero: each cap holds for its moment only
	mu    sync.Mutex    // guards caps
}

func (s *ramp) set(tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caps[0] = tokens
}

func (s *ramp) Cap(t time.Time) (int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.every == 0 {
		return s.caps[0], time.Time{}
	}
	i := min(int(t.Sub(s.start)/s.every), len(s.caps)-1)
	return s.caps[i], s.start.Add(time.Duration(i+1) * s.every)
}

func TestLimiterFollowsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := quota.New(&ramp{start: start, caps: []int{0, 100, 300, 0, 50}, every: 10 * time.Second}, nil)
		type admission struct {
			Tokens, Second int
			TooLarge       bool
		}
		var mu sync.Mutex
		var got []admission
		var wg sync.WaitGroup
		ask := func(tenant string, tokens int) {
			wg.Go(func() {
				r, err := l.Reserve(t.Context(), tenant, tokens)
				if r != nil {
					r.Settle()
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, admission{tokens, int(time.Since(start).Seconds()), errors.As(err, new(*quota.TooLargeError))})
			})
			synctest.Wait()
		}
		ask("a", 100) // closed: waits, whatever its size
		ask("b", 200)
		pass(20 * time.Second)
		ask("c", 200)
		ask("c", 60)
		ask("d", 30)
		wg.Wait()
		want := []admission{
			{100, 10, false},
			{200, 10, true},  // the gate opened at 100
			{200, 20, false}, // 100 + 200 fill the cap of 300
			{60, 40, true},   // closed at 30, open at 50
			{30, 80, false},  // what was sent at 20 left at 80.2
		}
		slices.SortStableFunc(got, func(a, b admission) int { return a.Second - b.Second })
		slices.SortFunc(got[:2], func(a, b admission) int { return a.Tokens - b.Tokens })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("admissions (-want +got):\n%s", diff)
		}
	})
}

func TestLimiterRefreshSeesAGrownShareAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &ramp{start: time.Now(), caps: []int{0}, every: time.Hour}
		l := quota.New(s, nil)
		start := time.Now()
		var m meter
		var wg sync.WaitGroup
		wg.Go(func() { spend(t, l, &m, "acme", 10) })
		pass(time.Second)
		if got := l.Stats().Blocked; got != quota.BlockedClosed {
			t.Errorf("Blocked = %q, want %q", got, quota.BlockedClosed)
		}
		s.set(10)
		l.Refresh()
		wg.Wait()
		if got, want := time.Since(start), time.Second; got != want {
			t.Errorf("released after %v, want %v", got, want)
		}
	})
}

func TestLimiterShareOfTheMomentIsPolledSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &ramp{caps: []int{0}}
		l := quota.New(s, nil)
		var m meter
		var wg sync.WaitGroup
		wg.Go(func() { spend(t, l, &m, "acme", 10) })
		pass(time.Second)
		s.set(10)
		start := time.Now()
		wg.Wait()
		if got, limit := time.Since(start), 100*time.Millisecond; got > limit {
			t.Errorf("seen after %v, want at most %v", got, limit)
		}
	})
}
