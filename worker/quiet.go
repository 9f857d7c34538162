package worker

import (
	"sync"
	"time"
)

// quiet calls back when nothing has been in hand for a while.
type quiet struct {
	mu     sync.Mutex
	after  time.Duration
	inHand int
	timer  *time.Timer // nil if nobody waits for quiet
}

// newQuiet begins to wait at once, unless after is 0. When it is quiet and f says no, it waits as long again.
func newQuiet(after time.Duration, f func() bool) *quiet {
	q := &quiet{after: after}
	if after > 0 {
		q.timer = time.AfterFunc(after, func() {
			if !f() {
				q.again()
			}
		})
	}
	return q
}

func (q *quiet) again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inHand == 0 && q.timer != nil {
		q.timer.Reset(q.after)
	}
}

func (q *quiet) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inHand++
	if q.timer != nil {
		q.timer.Stop()
	}
}

func (q *quiet) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inHand--; q.inHand == 0 && q.timer != nil {
		q.timer.Reset(q.after)
	}
}

func (q *quiet) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}
