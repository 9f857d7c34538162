package sbtest

import (
	"math"
	"sync/atomic"
	"time"
)

// clock calls one function when the earliest time asked for has come. Queues
// ask for it with every change, so asking is an atomic load in the common case
// that something earlier is already due.
type clock struct {
	next atomic.Int64 // Unix nanoseconds
	wake chan struct{}
}

func (c *clock) start() {
	c.next.Store(math.MaxInt64)
	c.wake = make(chan struct{}, 1)
}

// at asks for a call at t or soon after.
func (c *clock) at(t time.Time) {
	want := t.UnixNano()
	for {
		next := c.next.Load()
		if want >= next {
			return
		}
		if c.next.CompareAndSwap(next, want) {
			break
		}
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run calls tick until done is closed.
func (c *clock) run(done <-chan struct{}, tick func()) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		var due <-chan time.Time // stays nil while nothing is asked for
		if next := c.next.Load(); next != math.MaxInt64 {
			timer.Reset(time.Until(time.Unix(0, next)))
			due = timer.C
		}
		select {
		case <-done:
			return
		case <-c.wake:
		case <-due:
			c.next.Store(math.MaxInt64)
			tick()
		}
	}
}
