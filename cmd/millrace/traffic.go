package main

import (
	"sync"
	"time"

	"millrace/quota"
	"millrace/test/modeltest"
)

// traffic is what the model has been asked lately. It is safe for concurrent use.
type traffic struct {
	mu       sync.Mutex
	finished int      // calls
	lately   []charge // finished calls that still count against the workers' shares
}

// charge is a call that counts against the limit until a window after its arrival.
type charge struct {
	arrival time.Time
	tokens  int
}

// observe is told of every call that has ended.
func (t *traffic) observe(e modeltest.Event) {
	if !e.Admitted {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished++
	t.lately = append(t.lately, charge{e.Arrival, e.Charge})
}

// at returns how many calls have ended, the tokens of those within a window before now, and how long it takes until the
// first of these leave it: zero if there are none.
func (t *traffic) at(now time.Time) (finished, tokens int, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.lately[:0]
	for _, c := range t.lately {
		left := c.arrival.Add(quota.DefaultWindow).Sub(now)
		if left <= 0 {
			continue
		}
		kept = append(kept, c)
		tokens += c.tokens
		if next == 0 || left < next {
			next = left
		}
	}
	t.lately = kept
	return t.finished, tokens, next
}
