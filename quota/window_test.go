package quota

import (
	"testing"
	"time"
)

// step is one action on a window of one minute at a number of seconds from its start.
type step struct {
	at     float64
	do     string // "send", "reserve", "release", "drop" (tokens is the sequence number), "none"
	tokens int
	used   int     // afterwards
	next   float64 // second of the next expiry; 0 is none
}

func TestWindowOccupancy(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"a charge leaves exactly one window after it was sent", []step{
			{0, "send", 10, 10, 60},
			{59.999, "none", 0, 10, 60},
			{60, "none", 0, 0, 0},
		}},
		{"charges leave one by one", []step{
			{0, "send", 10, 10, 60},
			{1, "send", 20, 30, 60},
			{60.5, "none", 0, 20, 61},
			{61, "none", 0, 0, 0},
		}},
		{"an open reservation never expires", []step{
			{0, "reserve", 10, 10, 0},
			{600, "none", 0, 10, 0},
			{600, "release", 10, 0, 0},
		}},
		{"a dropped charge is gone at once and does not hold up the next expiry", []step{
			{0, "send", 10, 10, 60},
			{1, "send", 20, 30, 60},
			{2, "drop", 0, 20, 61},
			{61, "none", 0, 0, 0},
		}},
		{"dropping an expired charge changes nothing", []step{
			{0, "send", 10, 10, 60},
			{60, "send", 20, 20, 120},
			{61, "drop", 0, 20, 120},
		}},
		{"dropping twice gives back once", []step{
			{0, "send", 10, 10, 60},
			{0, "send", 20, 30, 60},
			{1, "drop", 1, 10, 60},
			{1, "drop", 1, 10, 60},
		}},
		{"several at one instant", []step{
			{5, "send", 1, 1, 65},
			{5, "send", 2, 3, 65},
			{5, "send", 3, 6, 65},
			{65, "none", 0, 0, 0},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := time.Now()
			at := func(sec float64) time.Time { return base.Add(time.Duration(sec * float64(time.Second))) }
			w := newWindow(time.Minute, base)
			for i, s := range tc.steps {
				switch s.do {
				case "send":
					w.send(at(s.at), s.tokens)
				case "reserve":
					w.reserve(s.tokens)
				case "release":
					w.release(s.tokens)
				case "drop":
					w.drop(uint64(s.tokens))
				}
				w.expire(at(s.at))
				if got := w.used(); got != s.used {
					t.Errorf("step %d: used() = %d, want %d", i, got, s.used)
				}
				next, ok := w.next()
				if ok != (s.next != 0) || ok && !next.Equal(at(s.next)) {
					t.Errorf("step %d: next() = %v, %v, want second %v", i, next.Sub(base), ok, s.next)
				}
			}
		})
	}
}

func TestWindowGrowsWithItsOrder(t *testing.T) {
	base := time.Now()
	w := newWindow(time.Minute, base)
	// Start in the middle of the ring, so that growing has to unwrap it.
	for i := range 10 {
		w.send(base.Add(time.Duration(i)), 1)
	}
	w.expire(base.Add(time.Minute + 10))
	var want int
	for i := range 1000 {
		w.send(base.Add(2*time.Minute+time.Duration(i)*time.Second/100), i)
		want += i
	}
	if got := w.used(); got != want {
		t.Fatalf("used() = %d, want %d", got, want)
	}
	for i := range 1000 {
		w.expire(base.Add(3*time.Minute + time.Duration(i)*time.Second/100))
		want -= i
		if got := w.used(); got != want {
			t.Fatalf("used() after %d expired = %d, want %d", i+1, got, want)
		}
	}
}
