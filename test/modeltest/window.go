package modeltest

import (
	"slices"
	"sort"
	"time"
)

const (
	// minute is the span over which tokens are counted.
	minute = time.Minute
	// lateness is how far behind the newest arrival another one may still be
	// entered exactly. An arrival is stamped before its body is read, so a slow
	// upload is entered late; ten minutes is longer than any client here waits.
	lateness = 10 * time.Minute
)

// window is a log of charges ordered by arrival. It answers how much was charged
// after an instant, and remembers the most that any minute ever held.
//
// A charge made at t belongs to (t-span, t]: it returns exactly one span later.
type window struct {
	log   []charge
	total int
	peak  int
}

// charge is one entry of a window; before is the sum of all entries ahead of it,
// so that any range is one subtraction.
type charge struct {
	at             time.Time
	amount, before int
}

// after returns what was charged later than t.
func (w *window) after(t time.Time) int {
	i := w.firstAfter(t)
	if i == len(w.log) {
		return 0
	}
	return w.total - w.log[i].before
}

func (w *window) firstAfter(t time.Time) int {
	return sort.Search(len(w.log), func(i int) bool { return w.log[i].at.After(t) })
}

// add enters a charge, in order even when it comes late.
func (w *window) add(at time.Time, amount int) {
	i := len(w.log)
	for i > 0 && w.log[i-1].at.After(at) {
		i--
	}
	before := w.total
	if i < len(w.log) {
		before = w.log[i].before
	}
	w.log = slices.Insert(w.log, i, charge{at: at, amount: amount, before: before})
	w.total += amount
	for j := i + 1; j < len(w.log); j++ {
		w.log[j].before += amount
	}
	// Only minutes that end at this charge or at one entered behind it changed.
	for j := i; j < len(w.log) && w.log[j].at.Before(at.Add(minute)); j++ {
		c := w.log[j]
		first := w.firstAfter(c.at.Add(-minute))
		w.peak = max(w.peak, c.before+c.amount-w.log[first].before)
	}
	w.prune()
}

// refund takes amount out of what was charged at the instant at. Charges of one
// instant leave every window together, so it does not matter which of them shrinks.
// The peak stays: it is judged at arrival.
func (w *window) refund(at time.Time, amount int) {
	i := w.firstAfter(at) - 1
	for ; i >= 0 && amount > 0 && w.log[i].at.Equal(at); i-- {
		part := min(amount, w.log[i].amount)
		if part == 0 {
			continue
		}
		w.log[i].amount -= part
		amount -= part
		w.total -= part
		for j := i + 1; j < len(w.log); j++ {
			w.log[j].before -= part
		}
	}
}

// wait returns how long after t the first instant lies at which need more fits
// under limit in a sliding span. It must be possible at all: need ≤ limit.
func (w *window) wait(t time.Time, span time.Duration, need, limit int) time.Duration {
	first := w.firstAfter(t.Add(-span))
	// All charges ahead of i have to leave.
	i := first + sort.Search(len(w.log)-first, func(n int) bool {
		return w.total-w.log[first+n].before+need <= limit
	})
	if i == first {
		return 0
	}
	return w.log[i-1].at.Add(span).Sub(t)
}

// prune drops what no later question can reach, a large piece at a time.
func (w *window) prune() {
	newest := w.log[len(w.log)-1].at
	if newest.Sub(w.log[0].at) < 2*(minute+lateness) {
		return
	}
	w.log = slices.Clone(w.log[w.firstAfter(newest.Add(-minute-lateness)):])
}
