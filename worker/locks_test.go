package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"millrace/test/sbtest"
	"millrace/worker"
)

// Trap: a renewal has no time limit of its own.
func TestRunSurvivesALostRenewalReply(t *testing.T) {
	for _, lock := range []time.Duration{30 * time.Second, time.Minute, 5 * time.Minute} {
		t.Run(lock.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate()
				l := start(t, &sbtest.QueueOptions{LockDuration: lock}, g.handle, &worker.Options{Slots: 1})
				l.send("a")
				l.locked(1)
				l.broker.Inject(sbtest.Fault{Point: sbtest.OnRequestReply, Operation: "renew-lock"})
				l.broker.Inject(sbtest.Fault{Point: sbtest.OnRequest, Operation: "renew-lock", After: 3})
				<-time.After(10 * time.Minute)
				close(g.open)
				l.await(empty)
				l.once(1)
				if n := l.worker.Counts().LocksLost.Load(); n != 0 {
					t.Errorf("locks lost = %d, want 0", n)
				}
			})
		})
	}
}

// Trap: a lock that cannot be renewed in its time cuts the work, and its delivery is settled by nobody.
func TestRunCutsWorkThatCannotBeRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var causes []error
		l := start(t, &sbtest.QueueOptions{LockDuration: time.Minute}, func(ctx context.Context, m *worker.Message) worker.Verdict {
			m.Start()
			if m.Delivery > 1 {
				return worker.Done(worker.Answered, "succeeded", "")
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return worker.Done(worker.Answered, "succeeded", "") // finished all the same, too late
		}, &worker.Options{Slots: 1})
		l.send("a")
		l.locked(1)
		began := time.Now()
		remove := l.broker.Inject(sbtest.Fault{Point: sbtest.OnRequest, Operation: "renew-lock", Times: -1})
		l.await(func(s sbtest.Stats) bool { return s.Active+s.Abandoned > 0 })
		if took := time.Since(began); took > 64*time.Second {
			t.Errorf("the lock was given up after %v, want about a minute", took)
		}
		remove()
		l.await(empty)
		if len(causes) != 1 || !errors.Is(causes[0], worker.ErrLockLost) {
			t.Errorf("causes = %v, want [ErrLockLost]", causes)
		}
		if s := l.broker.Stats(queue); s.Completed != 1 || s.Deliveries != 2 {
			t.Errorf("completed %d, deliveries %d, want 1, 2", s.Completed, s.Deliveries)
		}
	})
}

func TestRunKeepsLocksWithAWrongClock(t *testing.T) {
	for _, by := range []time.Duration{-5 * time.Minute, -20 * time.Second, 20 * time.Second, 5 * time.Minute} {
		for _, lock := range []time.Duration{30 * time.Second, 5 * time.Minute} {
			t.Run(fmt.Sprintf("broker %v, lock %v", by, lock), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate()
					var log bytes.Buffer
					l := startOver(t, &sbtest.QueueOptions{LockDuration: lock}, wrongClock(by), g.handle,
						&worker.Options{Slots: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))})
					l.send("a", "b")
					l.locked(2)
					<-time.After(11 * time.Minute)
					close(g.open)
					l.await(empty)
					l.once(2)
					l.stop()
					wrong := by < 0 && lock+by < 0 || by+lock > 5*time.Minute+10*time.Second
					if n := strings.Count(log.String(), "clock differs"); wrong && n == 0 || !wrong && n != 0 || n > 2 {
						t.Errorf("warnings of a wrong clock = %d, want some: %v", n, wrong)
					}
				})
			})
		}
	}
}

func TestRunKeepsShortLocksOverASlowNetwork(t *testing.T) {
	for _, delay := range []time.Duration{50 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate()
				l := startOver(t, &sbtest.QueueOptions{LockDuration: 5 * time.Second}, slow(between(delay, delay)), g.handle,
					&worker.Options{Receivers: 1, Slots: 8})
				l.sendMany(8)
				l.await(func(s sbtest.Stats) bool { return s.Locked == 8 })
				<-time.After(2 * time.Minute)
				close(g.open)
				l.await(empty)
				l.once(8)
			})
		})
	}
}
