package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets the test binary be a world or a subject, as the program itself is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "-world" || os.Args[1] == "-subject") {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestPlanRun does the work of one small cell with every subject, in real processes.
func TestPlanRun(t *testing.T) {
	c := cell{Slots: 4, Latency: time.Millisecond, Messages: 20}
	p := plan{cells: []cell{c}, rounds: 1, budget: time.Minute}
	r, err := p.run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range subjects {
		of := r.of[c][subject]
		if len(of) != 1 || of[0].Rate <= 0 || of[0].CPU <= 0 || of[0].Allocations <= 0 || of[0].Connections < 3 {
			t.Errorf("%s: figures = %+v, want one with everything in it", subject, of)
		}
	}
	var out bytes.Buffer
	if err := report(&out, r); err != nil {
		t.Fatal(err)
	}
	if last := out.String()[strings.LastIndex(strings.TrimSpace(out.String()), "\n")+1:]; !strings.HasPrefix(last, "bench-worker: min ratio ") {
		t.Errorf("the last line of the report is %q", last)
	}
}

func TestOrder(t *testing.T) {
	behind := map[string]int{} // "x after y"
	for round := range 6 {
		o := order(round)
		if len(o) != len(subjects) || !strings.Contains(fmt.Sprint(o), worker) || !strings.Contains(fmt.Sprint(o), bare) || !strings.Contains(fmt.Sprint(o), first) {
			t.Fatalf("order(%d) = %v, want every subject once", round, o)
		}
		for i := 1; i < len(o); i++ {
			behind[o[i]+" after "+o[i-1]]++
		}
	}
	for pair, n := range behind {
		if n != 2 {
			t.Errorf("%s in %d of 6 rounds, want 2", pair, n)
		}
	}
}

func TestMiddle(t *testing.T) {
	for _, tc := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 4}, 4}, {[]float64{9, 1, 4, 2}, 3}} {
		if got := middle(tc.of); got != tc.want {
			t.Errorf("middle(%v) = %v, want %v", tc.of, got, tc.want)
		}
	}
	if got := middle(nil); !math.IsNaN(got) {
		t.Errorf("middle(nil) = %v, want NaN", got)
	}
}

// TestReport: ratios are taken within a round, so that a slow round does not count against who ran in it.
func TestReport(t *testing.T) {
	const ms = time.Millisecond
	small, large := cell{1, 0, 10}, cell{64, 50 * ms, 10}
	r := &results{cells: []cell{small, large}, rounds: 3, took: time.Second, of: map[cell]map[string][]figures{
		small: {
			worker: {{Rate: 90, CPU: 10}, {Rate: 9, CPU: 100}, {Rate: 95, CPU: 10}},
			bare:   {{Rate: 100, CPU: 9}, {Rate: 10, CPU: 90}, {Rate: 100, CPU: 9}},
			first:  {{Rate: 50, CPU: 20}, {Rate: 5, CPU: 200}, {Rate: 50, CPU: 20}},
		},
		large: {
			worker: {{Rate: 80, CPU: 8}, {Rate: 80, CPU: 8}, {Rate: 80, CPU: 8}},
			bare:   {{Rate: 100, CPU: 4}, {Rate: 100, CPU: 4}, {Rate: 100, CPU: 4}},
			first:  {{Rate: 40, CPU: 8}, {Rate: 40, CPU: 8}, {Rate: 40, CPU: 8}},
		},
	}}
	var out bytes.Buffer
	if err := report(&out, r); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		"messages/s, worker ÷ first: min ratio 1.80 (slots 1, model 0 ms)",
		"CPU per message, bare ÷ worker: min ratio 0.50 (slots 64, model 50 ms)",
		"CPU per message, first ÷ worker: min ratio 1.00 (slots 64, model 50 ms)",
		"bench-worker: min ratio 0.80 (slots 64, model 50 ms)",
	}
	if diff := cmp.Diff(want, lines[len(lines)-4:]); diff != "" {
		t.Errorf("report() ends with (-want +got):\n%s", diff)
	}
}
