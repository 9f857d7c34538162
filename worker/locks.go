package worker

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	longestLock  = 5 * time.Minute  // the service's maximum lock duration
	unknownLock  = 10 * time.Second // assumed when the broker's clock and ours disagree by more than the lock
	renewEvery   = 15 * time.Second // never trust a lock longer than this without asking
	renewTimeout = 10 * time.Second // the SDK never gives up on a renewal by itself
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

// keepLock renews the lock of d until ctx ends. When the lock is gone, or could not be renewed for as long as it was
// known to last, it calls lost once and returns.
func (l *link) keepLock(ctx context.Context, d *delivery, lost func()) {
	m := *d.raw // RenewMessageLock writes into its argument while a settlement may read the original
	expires := d.received.Add(lockLeft(m.LockedUntil, d.received))
	pause := min(time.Until(expires)/2, renewEvery)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		left := time.Until(expires)
		if left <= 0 {
			lost()
			return
		}
		err := l.renew(ctx, &m, min(left, renewTimeout))
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			now := time.Now()
			expires = now.Add(lockLeft(m.LockedUntil, now))
			pause = min(expires.Sub(now)/2, renewEvery)
			l.counts.Renewals.Add(1)
		case lockLost(err):
			lost()
			return
		default:
			l.log.Debug("lock renewal failed", "message_id", d.ID, "err", err)
			pause = min(time.Second, max(time.Until(expires)/4, 50*time.Millisecond))
		}
		timer.Reset(pause)
	}
}

func (l *link) renew(ctx context.Context, m *azservicebus.ReceivedMessage, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	receiver, _ := l.current()
	return receiver.RenewMessageLock(ctx, m, nil)
}

func lockLost(err error) bool {
	var e *azservicebus.Error
	return errors.As(err, &e) && e.Code == azservicebus.CodeLockLost
}
