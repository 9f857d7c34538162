package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is the pause after attempt n (from 0): exponential from base up to top, the upper half of it random, so that
// a fleet that failed together does not come back together and nobody comes back at once.
func backoff(n int, base, top time.Duration) time.Duration {
	d := top
	if n < 30 && base<<n < top {
		d = base << n
	}
	return d/2 + rand.N(d/2+1)
}

// pause waits for d and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
