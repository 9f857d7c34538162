package quota

import "time"

// window is the occupancy of one sliding window. It is arithmetic alone: times come in as arguments and never go backwards.
//
// Charges are sent in the order of their times, so the log is a ring: it grows at the back and expires at the front, and a charge is
// found by its sequence number.
type window struct {
	length time.Duration
	base   time.Time // what charge.at counts from
	open   int       // tokens reserved and not sent
	closed int       // tokens in the ring

	ring  []charge // a power of two long
	first uint64   // sequence number of the oldest charge in the ring
	end   uint64   // sequence number of the next
}

// charge is one sent request. A dropped charge keeps its place with zero tokens.
type charge struct {
	at     time.Duration
	tokens int
}

func newWindow(length time.Duration, t time.Time) window {
	return window{length: length, base: t, ring: make([]charge, 16)}
}

func (w *window) used() int { return w.open + w.closed }

func (w *window) slot(seq uint64) *charge { return &w.ring[seq&uint64(len(w.ring)-1)] }

// expire forgets what was sent one window length ago or earlier.
func (w *window) expire(t time.Time) {
	edge := t.Sub(w.base) - w.length
	for w.first != w.end {
		c := w.slot(w.first)
		if c.at > edge && c.tokens > 0 {
			return
		}
		w.closed -= c.tokens
		w.first++
	}
}

// next returns when the oldest charge expires. It is false if only reservations that were not sent occupy the window, or nothing
// does.
func (w *window) next() (time.Time, bool) {
	if w.first == w.end {
		return time.Time{}, false
	}
	return w.base.Add(w.slot(w.first).at + w.length), true
}

func (w *window) reserve(tokens int) { w.open += tokens }

func (w *window) release(tokens int) { w.open -= tokens }

// send records a charge at t and returns its sequence number.
func (w *window) send(t time.Time, tokens int) uint64 {
	if w.end-w.first == uint64(len(w.ring)) {
		w.grow()
	}
	seq := w.end
	*w.slot(seq) = charge{at: t.Sub(w.base), tokens: tokens}
	w.end++
	w.closed += tokens
	return seq
}

// drop takes a charge out before its time. A charge that has expired stays expired.
func (w *window) drop(seq uint64) {
	if seq < w.first {
		return
	}
	c := w.slot(seq)
	w.closed -= c.tokens
	c.tokens = 0
}

func (w *window) grow() {
	ring := make([]charge, 2*len(w.ring))
	for seq := w.first; seq != w.end; seq++ {
		ring[seq&uint64(len(ring)-1)] = *w.slot(seq)
	}
	w.ring = ring
}
