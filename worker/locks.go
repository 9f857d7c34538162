package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	longestLock = 5 * time.Minute  // the service's maximum lock duration
	unknownLock = 10 * time.Second // assumed when the broker's clock and ours disagree by more than the lock
	renewEvery  = 15 * time.Second // never trust a lock longer than this without asking
	clockSlack  = 10 * time.Second // beyond a lock's possible length; more is a wrong clock
)

// lockLeft is how long a lock that the broker says ends at until may be relied on at time t, both by their own clocks.
// A clock that is minutes off must not make a lock look dead or immortal.
func lockLeft(until *time.Time, t time.Time) time.Duration {
	if until == nil {
		return unknownLock
	}
	switch left := until.Sub(t); {
	case left <= 0:
		return unknownLock
	case left > longestLock:
		return longestLock
	default:
		return left
	}
}

// watchClock warns once when a lock ends at a time that can only mean a wrong clock, the broker's or ours.
func (l *link) watchClock(until *time.Time, t time.Time) {
	if until == nil {
		return
	}
	if left := until.Sub(t); left < 0 || left > longestLock+clockSlack {
		l.skewed.Do(func() {
			l.log.Warn("clock differs from the broker's by more than a lock lasts", "lock_left", left.Round(time.Second))
		})
	}
}

// keep renews the lock of d until ctx ends. When the lock is gone, or could not be renewed for as long as it was known to
// last, it calls lost once. The returned function waits for the end of that; call it after ctx has ended. Most messages
// are done before their first renewal, so no goroutine is started before that is due.
func (l *link) keep(ctx context.Context, d *delivery, lost func()) (join func()) {
	l.watchClock(d.raw.LockedUntil, d.received)
	expires := d.received.Add(lockLeft(d.raw.LockedUntil, d.received))
	var renewing sync.WaitGroup
	renewing.Add(1)
	first := time.AfterFunc(renewIn(time.Until(expires)), func() {
		defer renewing.Done()
		if ctx.Err() == nil {
			l.keepRenewing(ctx, d, expires, lost)
		}
	})
	return func() {
		if first.Stop() {
			renewing.Done()
		}
		renewing.Wait()
	}
}

// renewIn is the pause before the next renewal of a lock that has so much left: at most half of it, and up to a fifth
// less, so that messages that came together do not ask together.
func renewIn(left time.Duration) time.Duration {
	wait := min(left/2, renewEvery)
	return wait - rand.N(wait/5+1)
}

func (l *link) keepRenewing(ctx context.Context, d *delivery, expires time.Time, lost func()) {
	m := *d.raw // RenewMessageLock writes into its argument while a settlement may read the original
	for {
		left := time.Until(expires)
		if left <= 0 {
			lost()
			return
		}
		var wait time.Duration
		err := l.renew(ctx, &m, left)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			now := time.Now()
			expires = now.Add(lockLeft(m.LockedUntil, now))
			wait = renewIn(expires.Sub(now))
			l.counts.Renewals.Add(1)
		case lockLost(err):
			lost()
			return
		default:
			l.log.Debug("lock renewal failed", "message_id", d.ID, "err", err)
			wait = min(time.Second, max(time.Until(expires)/4, 50*time.Millisecond))
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// renew asks once, in at most half of the time that the lock is known to last, so that it can ask again.
func (l *link) renew(ctx context.Context, m *azservicebus.ReceivedMessage, left time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	ln, err := l.borrow(waiting)
	if err != nil {
		return err
	}
	defer ln.users.Done()
	asking, cancel := context.WithTimeout(waiting, min(left/2, useFor))
	defer cancel()
	err = ln.receiver.RenewMessageLock(asking, m, nil)
	if err != nil && !lockLost(err) && ctx.Err() == nil {
		l.suspect(ln)
	}
	return err
}
