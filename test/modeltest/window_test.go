package modeltest

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestWindowIsExact compares the window with the definition of it, on charges that
// come out of order, with ties and with refunds.
func TestWindowIsExact(t *testing.T) {
	type entry struct {
		at     time.Time
		amount int
	}
	sum := func(log []entry, from, to time.Time) (n int) { // (from, to]
		for _, e := range log {
			if e.at.After(from) && !e.at.After(to) {
				n += e.amount
			}
		}
		return n
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now := start
		var w window
		var log, offered []entry
		for range 300 {
			now = now.Add(time.Duration(r.IntN(3)) * time.Second)
			late := now.Add(-time.Duration(r.IntN(4)) * 7 * time.Second)
			e := entry{late, 1 + r.IntN(1000)}
			w.add(e.at, e.amount)
			log, offered = append(log, e), append(offered, e)
			if r.IntN(4) == 0 {
				part := r.IntN(e.amount)
				w.refund(e.at, part)
				log[len(log)-1].amount -= part
			}
			from := now.Add(-time.Duration(r.IntN(120)) * time.Second)
			if got, want := w.after(from), sum(log, from, now); got != want {
				t.Fatalf("seed %d: after(%v) = %d, want %d", seed, from.Sub(start), got, want)
			}
			need, limit := r.IntN(500), 500+r.IntN(20_000)
			wait := w.wait(now, minute, need, limit)
			if got := sum(log, now.Add(wait-minute), now) + need; got > limit {
				t.Fatalf("seed %d: wait(%d, %d) = %v, but then %d are used", seed, need, limit, wait, got)
			}
			if wait > 0 && sum(log, now.Add(wait-1-minute), now)+need <= limit {
				t.Fatalf("seed %d: wait(%d, %d) = %v, but it would fit sooner", seed, need, limit, wait)
			}
		}
		// Refunds make a later peak smaller, never an earlier one, so the exact
		// peak is compared on a window without them.
		w = window{}
		want := 0
		for _, e := range offered {
			w.add(e.at, e.amount)
		}
		for _, e := range offered {
			want = max(want, sum(offered, e.at.Add(-minute), e.at))
		}
		if w.peak != want {
			t.Errorf("seed %d: peak = %d, want %d", seed, w.peak, want)
		}
	}
}

func TestWindowForgetsWhatNothingCanReach(t *testing.T) {
	var w window
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 20_000 {
		w.add(at, 1)
		at = at.Add(time.Second)
	}
	if got := len(w.log); got > 3000 {
		t.Errorf("len(log) = %d after 20,000 charges in as many seconds, want at most 3000", got)
	}
	if w.peak != 60 || w.total != 20_000 {
		t.Errorf("peak, total = %d, %d, want 60, 20000", w.peak, w.total)
	}
}

func BenchmarkWindowAdd(b *testing.B) {
	var w window
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		at = at.Add(time.Millisecond) // 60,000 charges in every minute
		w.add(at, 2000)
		w.after(at.Add(-minute))
	}
}
