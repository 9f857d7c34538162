package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
	"millrace/worker"
)

const queue = "doc-ingest"

// lab is a broker and a worker over it, both inside one bubble.
type lab struct {
	t      *testing.T
	broker *sbtest.Server
	worker *worker.Worker
	quit   func()       // asks Run to end
	stop   func() error // does that and returns what Run returned
}

func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func start(t *testing.T, q *sbtest.QueueOptions, h worker.Handler, opts *worker.Options) *lab {
	t.Helper()
	return startOver(t, q, nil, h, opts)
}

// startOver is start over a network of the test's own; nil is one without delay.
func startOver(t *testing.T, q *sbtest.QueueOptions, dial dialer, h worker.Handler, opts *worker.Options) *lab {
	t.Helper()
	l := &lab{t: t, broker: &sbtest.Server{}}
	if err := l.broker.CreateQueue(queue, q); err != nil {
		t.Fatal(err)
	}
	pool, err := worker.NewPool(1, func() (*azservicebus.Client, error) { return client(l.broker, dial) })
	if err != nil {
		t.Fatal(err)
	}
	l.worker = worker.New(pool, queue, h, opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.worker.Run(ctx) }()
	l.quit = cancel
	l.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := l.stop(); err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		if err := pool.Close(context.Background()); err != nil {
			t.Logf("close pool: %v", err)
		}
		if err := l.broker.Close(); err != nil {
			t.Errorf("close broker: %v", err)
		}
	})
	return l
}

func client(b *sbtest.Server, dial dialer) (*azservicebus.Client, error) {
	if dial == nil {
		dial = func(ctx context.Context, b *sbtest.Server) (net.Conn, error) { return b.Dial(ctx) }
	}
	return azservicebus.NewClientFromConnectionString(b.ConnectionString(), &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return dial(ctx, b) },
	})
}

func (l *lab) send(ids ...string) {
	l.t.Helper()
	for _, id := range ids {
		if err := l.broker.Send(queue, sbtest.Message{ID: id, Body: []byte(id)}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// await waits until cond holds for the queue, in virtual time.
func (l *lab) await(cond func(sbtest.Stats) bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 24*time.Hour)
	defer cancel()
	if err := l.broker.Await(ctx, queue, cond); err != nil {
		l.t.Fatalf("queue: %v; it is %+v", err, l.broker.Stats(queue))
	}
}

func empty(s sbtest.Stats) bool { return s.Active+s.Locked+s.Scheduled == 0 }

func answered(context.Context, *worker.Message) worker.Verdict {
	return worker.Done(worker.Answered, "succeeded", "")
}

func TestRunSettlesByVerdict(t *testing.T) {
	for _, tc := range []struct {
		name    string
		verdict worker.Verdict
		want    sbtest.Stats // Completed, Abandoned, Buried
	}{
		{"answered", worker.Done(worker.Answered, "succeeded", ""), sbtest.Stats{Completed: 1}},
		{"refused", worker.Done(worker.Refused, "refused", "prompt_filter"), sbtest.Stats{Completed: 1}},
		{"failed", worker.Done(worker.Failed, "rejected", "context_length"), sbtest.Stats{Completed: 1}},
		{"skipped", worker.Skip("other_event"), sbtest.Stats{Completed: 1}},
		{"poison", worker.Reject("malformed", "not JSON"), sbtest.Stats{Buried: 1}},
		{"unexplained", worker.Verdict{}, sbtest.Stats{Abandoned: 3, Buried: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := start(t, &sbtest.QueueOptions{MaxDeliveryCount: 3},
					func(context.Context, *worker.Message) worker.Verdict { return tc.verdict }, nil)
				l.send("a")
				l.await(empty)
				got := l.broker.Stats(queue)
				if got.Completed != tc.want.Completed || got.Abandoned != tc.want.Abandoned || got.Buried != tc.want.Buried {
					t.Errorf("completed, abandoned, dead-lettered = %d, %d, %d, want %d, %d, %d", got.Completed, got.Abandoned, got.Buried,
						tc.want.Completed, tc.want.Abandoned, tc.want.Buried)
				}
			})
		})
	}
}

func TestRunDeadLettersWithReasonAndShortDescription(t *testing.T) {
	bubble(t, func(t *testing.T) {
		long := make([]byte, 40<<10)
		for i := range long {
			long[i] = 'x'
		}
		l := start(t, nil, func(context.Context, *worker.Message) worker.Verdict {
			return worker.Reject("invalid_field", "model: \xff\x00 "+string(long))
		}, nil)
		l.send("a")
		l.await(empty)
		dead := l.broker.Peek(queue+"/$DeadLetterQueue", 10)
		if len(dead) != 1 {
			t.Fatalf("dead letters = %d, want 1", len(dead))
		}
		if got := dead[0].ApplicationProperties["DeadLetterReason"]; got != "invalid_field" {
			t.Errorf("reason = %v, want invalid_field", got)
		}
		if got, _ := dead[0].ApplicationProperties["DeadLetterErrorDescription"].(string); len(got) == 0 || len(got) > 1024 {
			t.Errorf("description has %d bytes, want 1 to 1024", len(got))
		}
	})
}

func TestRunKeepsTheLockOfLongWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var calls atomic.Int32
		l := start(t, &sbtest.QueueOptions{LockDuration: 30 * time.Second}, func(ctx context.Context, m *worker.Message) worker.Verdict {
			calls.Add(1)
			select {
			case <-time.After(10 * time.Minute):
			case <-ctx.Done():
				return worker.Interrupted(context.Cause(ctx))
			}
			return worker.Done(worker.Answered, "succeeded", "")
		}, nil)
		l.send("a")
		l.await(empty)
		s := l.broker.Stats(queue)
		if calls.Load() != 1 || s.Completed != 1 || s.LocksExpired != 0 || s.Renewals < 20 {
			t.Errorf("calls %d, completed %d, locks expired %d, renewals %d, want 1, 1, 0, at least 20", calls.Load(), s.Completed, s.LocksExpired, s.Renewals)
		}
	})
}

func TestRunCutsWorkWhoseLockIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		causes := make(chan error, 10)
		working := make(chan struct{}, 10)
		l := start(t, &sbtest.QueueOptions{LockDuration: 30 * time.Second}, func(ctx context.Context, m *worker.Message) worker.Verdict {
			if m.Delivery > 1 {
				return worker.Done(worker.Answered, "succeeded", "")
			}
			working <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return worker.Interrupted(context.Cause(ctx))
		}, nil)
		l.send("a")
		<-working
		l.broker.Inject(sbtest.Fault{Point: sbtest.OnRequest, Operation: "renew-lock", Status: 410})
		l.await(empty)
		if cause := <-causes; !errors.Is(cause, worker.ErrLockLost) {
			t.Errorf("cause = %v, want ErrLockLost", cause)
		}
		if s := l.broker.Stats(queue); s.Completed != 1 {
			t.Errorf("completed = %d, want 1", s.Completed)
		}
	})
}

func TestRunHoldsThroughAnOutage(t *testing.T) {
	for _, tc := range []struct {
		name string
		v    worker.Verdict
	}{
		{"infrastructure", worker.Outage("blob:acct", 0, errors.New("down"))},
		{"throttled", worker.Throttle("model:gpt", 7*time.Second, errors.New("429"))},
		{"misconfigured", worker.Misconfig("model:gpt", errors.New("401"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				until := time.Now().Add(50 * time.Minute)
				l := start(t, &sbtest.QueueOptions{LockDuration: 30 * time.Second}, func(context.Context, *worker.Message) worker.Verdict {
					if time.Now().Before(until) {
						return tc.v
					}
					return worker.Done(worker.Answered, "succeeded", "")
				}, &worker.Options{Slots: 4})
				l.send("a", "b", "c", "d", "e", "f")
				l.await(empty)
				s := l.broker.Stats(queue)
				if s.Completed != 6 || s.Deliveries != 6 || s.Abandoned != 0 || s.LocksExpired != 0 {
					t.Errorf("completed %d, deliveries %d, abandoned %d, locks expired %d, want 6, 6, 0, 0",
						s.Completed, s.Deliveries, s.Abandoned, s.LocksExpired)
				}
			})
		})
	}
}

func TestRunAbandonsPastTheHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := start(t, &sbtest.QueueOptions{MaxDeliveryCount: 1}, func(context.Context, *worker.Message) worker.Verdict {
			return worker.Outage("blob:acct", 0, errors.New("down"))
		}, &worker.Options{Hold: 5 * time.Minute})
		began := time.Now()
		l.send("a")
		l.await(empty)
		if took := time.Since(began); took < 5*time.Minute || took > 6*time.Minute {
			t.Errorf("held for %v, want 5 to 6 minutes", took)
		}
	})
}

func TestRunContainsAPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := start(t, &sbtest.QueueOptions{MaxDeliveryCount: 2}, func(_ context.Context, m *worker.Message) worker.Verdict {
			if m.ID == "bad" {
				panic("document text")
			}
			return worker.Done(worker.Answered, "succeeded", "")
		}, nil)
		l.send("bad", "good")
		l.await(empty)
		s := l.broker.Stats(queue)
		if s.Completed != 1 || s.Buried != 1 || s.Abandoned != 2 {
			t.Errorf("completed %d, dead-lettered %d, abandoned %d, want 1, 1, 2", s.Completed, s.Buried, s.Abandoned)
		}
	})
}

func TestRunDrain(t *testing.T) {
	for _, tc := range []struct {
		name      string
		starts    bool
		work      time.Duration
		completed int
		abandoned int
	}{
		{"not started is abandoned at once", false, time.Hour, 0, 1},
		{"started finishes within grace", true, 8 * time.Second, 1, 0},
		{"started is cut after grace", true, time.Hour, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				working := make(chan struct{})
				l := start(t, nil, func(ctx context.Context, m *worker.Message) worker.Verdict {
					close(working)
					if tc.starts && !m.Start() {
						return worker.Interrupted(worker.ErrDraining)
					}
					select {
					case <-time.After(tc.work):
						return worker.Done(worker.Answered, "succeeded", "")
					case <-ctx.Done():
						return worker.Interrupted(context.Cause(ctx))
					}
				}, &worker.Options{DrainFor: 10 * time.Second})
				l.send("a")
				<-working
				synctest.Wait()
				began := time.Now()
				if err := l.stop(); err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				s := l.broker.Stats(queue)
				if s.Completed != tc.completed || s.Abandoned != tc.abandoned || s.Locked != 0 {
					t.Errorf("completed %d, abandoned %d, locked %d, want %d, %d, 0", s.Completed, s.Abandoned, s.Locked, tc.completed, tc.abandoned)
				}
				if !tc.starts && took > time.Second || took > 11*time.Second {
					t.Errorf("drain took %v", took)
				}
			})
		})
	}
}

func TestRunAsksForExactlyItsSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		var inHand, most atomic.Int32
		l := start(t, nil, func(context.Context, *worker.Message) worker.Verdict {
			if n := inHand.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-release
			inHand.Add(-1)
			return worker.Done(worker.Answered, "succeeded", "")
		}, &worker.Options{Slots: 5, Receivers: 2})
		for i := range 20 {
			l.send(fmt.Sprint(i))
		}
		synctest.Wait()
		if s := l.broker.Stats(queue); s.Locked != 5 || s.Active != 15 {
			t.Errorf("locked %d, waiting %d, want 5 in hand and 15 left on the queue", s.Locked, s.Active)
		}
		close(release)
		l.await(empty)
		s := l.broker.Stats(queue)
		if most.Load() != 5 || s.Attaches != 2 || s.Released != 0 {
			t.Errorf("most in hand %d, attaches %d, released %d, want 5, 2, 0", most.Load(), s.Attaches, s.Released)
		}
	})
}

// The traps below are those of the Go SDK, azservicebus v1.11.0; traps_test.go has more.

func TestRunRebuildsALinkDetachedWithServerBusy(t *testing.T) {
	for _, condition := range []string{"com.microsoft:server-busy", "com.microsoft:timeout", "amqp:link:detach-forced"} {
		t.Run(condition, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := start(t, nil, answered, &worker.Options{Receivers: 1})
				l.send("before")
				l.await(empty)
				synctest.Wait()
				if n := l.broker.Detach(queue, condition, "busy"); n != 1 {
					t.Fatalf("Detach() = %d links, want 1", n)
				}
				l.send("after")
				began := time.Now()
				l.await(empty)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("recovery took %v, want less than 10s", took)
				}
				if s := l.broker.Stats(queue); s.Completed != 2 || s.Attaches != 2 {
					t.Errorf("completed %d with %d attaches, want 2 with 2", s.Completed, s.Attaches)
				}
			})
		})
	}
}

func TestRunSettlesAfterTheConnectionDied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		working := make(chan struct{})
		finish := make(chan struct{})
		l := start(t, nil, func(context.Context, *worker.Message) worker.Verdict {
			close(working)
			<-finish
			return worker.Done(worker.Answered, "succeeded", "")
		}, &worker.Options{Receivers: 1, Slots: 4})
		l.send("a")
		<-working
		l.broker.Cut()
		synctest.Wait()
		close(finish)
		began := time.Now()
		l.await(empty)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("completion took %v, want less than 10s", took)
		}
		s := l.broker.Stats(queue)
		if s.Completed != 1 || s.Deliveries != 1 {
			t.Errorf("completed %d after %d deliveries, want 1 after 1", s.Completed, s.Deliveries)
		}
		if n := l.broker.Totals().Connections; n > 3 {
			t.Errorf("connections = %d, want at most 3", n)
		}
	})
}

func TestRunBacksOffWhenTheQueueRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := start(t, nil, answered, &worker.Options{Receivers: 1})
		remove := l.broker.Inject(sbtest.Fault{Point: sbtest.OnAttachReceiver, Condition: "com.microsoft:entity-disabled", Times: -1})
		synctest.Wait()
		l.broker.Cut()
		before := l.broker.Totals().Connections
		<-time.After(10 * time.Minute) // virtual
		if n := l.broker.Totals().Connections - before; n > 60 {
			t.Errorf("connections in 10 minutes = %d, want at most 60", n)
		}
		remove()
		l.send("a")
		l.await(empty)
	})
}

func TestRunSurvivesALostSettlementReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var deliveries []int
		l := start(t, nil, func(_ context.Context, m *worker.Message) worker.Verdict {
			deliveries = append(deliveries, m.Delivery)
			return worker.Done(worker.Answered, "succeeded", "")
		}, &worker.Options{Slots: 1})
		l.broker.Inject(sbtest.Fault{Point: sbtest.OnSettleReply, Times: 1})
		l.send("a")
		l.await(empty)
		if !slices.Equal(deliveries, []int{1}) {
			t.Errorf("deliveries = %v, want the first only: the settlement was applied, its reply lost", deliveries)
		}
	})
}
