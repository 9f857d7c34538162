package worker

import "sync/atomic"

// countdown is over when it has been counted down n times.
type countdown struct {
	left atomic.Int64
	over chan struct{}
}

func newCountdown(n int) *countdown {
	c := &countdown{over: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *countdown) down() {
	if c.left.Add(-1) == 0 {
		close(c.over)
	}
}
