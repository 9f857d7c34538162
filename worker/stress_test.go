package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
	"millrace/worker"
)

func TestRunAlreadyCancelledDialsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := startOn(t, nil, func(pool *worker.Pool) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return worker.New(pool, queue, answered, nil).Run(ctx)
		})
		if err := <-l.done; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		if n := l.broker.Totals().Connections; n != 0 {
			t.Errorf("connections = %d, want 0", n)
		}
	})
}

func TestRunNamesHandlersThatDoNotEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stuck, release := make(chan struct{}), make(chan struct{})
		l := startOn(t, nil, func(pool *worker.Pool) error {
			return worker.New(pool, queue, func(context.Context, *worker.Message) worker.Verdict {
				close(stuck)
				<-release
				return worker.Done(worker.Answered, "succeeded", "")
			}, &worker.Options{DrainFor: 10 * time.Second}).Run(ctx)
		})
		l.send("a")
		<-stuck
		cancel()
		began := time.Now()
		err := <-l.done
		if took := time.Since(began); err == nil || took > time.Minute {
			t.Errorf("Run() = %v after %v, want an error within a minute", err, took)
		}
		close(release) // it comes back after all, and is settled
		l.await(empty)
		<-time.After(time.Minute)
		l.once(1)
	})
}

func TestRunFillsFewerSlotsThanReceivers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := start(t, nil, answered, &worker.Options{Slots: 1, Receivers: 4})
		l.sendMany(50)
		l.await(empty)
		l.once(50)
		if n := l.broker.Stats(queue).Attaches; n != 1 {
			t.Errorf("receiver links = %d, want 1", n)
		}
	})
}

func TestRunSharesAPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		firstDone := make(chan error, 1)
		l := startOn(t, nil, func(pool *worker.Pool) error {
			go func() { firstDone <- worker.New(pool, queue, answered, nil).Run(first) }()
			return worker.New(pool, queue, answered, nil).Run(second)
		})
		l.sendMany(100)
		l.await(empty)
		stopFirst()
		if err := <-firstDone; err != nil {
			t.Errorf("first Run() = %v, want nil", err)
		}
		for i := range 100 {
			l.send(fmt.Sprint("more", i))
		}
		l.await(empty)
		l.once(200)
		if n := l.broker.Totals().Connections; n != 1 {
			t.Errorf("connections = %d, want 1", n)
		}
		stopSecond()
		if err := <-l.done; err != nil {
			t.Errorf("second Run() = %v, want nil", err)
		}
	})
}

func TestRunAbandonsWhatNobodyCanExplain(t *testing.T) {
	for _, tc := range []struct {
		name    string
		verdict worker.Verdict
	}{
		{"no kind", worker.Verdict{}},
		{"unknown kind", worker.Verdict{Kind: worker.Cut + 1}},
		{"negative kind", worker.Verdict{Kind: -1}},
		{"interrupted by itself", worker.Interrupted(context.DeadlineExceeded)},
		{"drain without a drain", worker.Interrupted(worker.ErrDraining)},
		{"throttled by nobody", worker.Throttle("", time.Hour, errors.New("429"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := start(t, nil, func(_ context.Context, m *worker.Message) worker.Verdict {
					if m.Delivery == 1 {
						return tc.verdict
					}
					return worker.Done(worker.Answered, "succeeded", "")
				}, nil)
				l.send("a")
				began := time.Now()
				l.await(empty)
				if took, s := time.Since(began), l.broker.Stats(queue); took > time.Second || s.Abandoned != 1 || s.Completed != 1 {
					t.Errorf("took %v, abandoned %d, completed %d, want at most 1s, 1, 1", took, s.Abandoned, s.Completed)
				}
			})
		})
	}
}

func TestRunDoesNotWaitPastTheHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := start(t, &sbtest.QueueOptions{MaxDeliveryCount: 1}, func(context.Context, *worker.Message) worker.Verdict {
			return worker.Outage("model:host/gpt", 24*time.Hour, errors.New("503"))
		}, &worker.Options{Hold: 10 * time.Minute})
		began := time.Now()
		l.send("a")
		l.await(empty)
		if took := time.Since(began); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("held for %v, want 10 to 11 minutes", took)
		}
	})
}

// A rolling restart under load over a slow network: a new worker comes, the old one goes, again and again.
func TestRunLosesNothingInARollingRestart(t *testing.T) {
	const messages, generations, slots = 2000, 12, 16
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := &sbtest.Server{}
				if err := b.CreateQueue(queue, &sbtest.QueueOptions{LockDuration: time.Minute}); err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				dice := rand.New(rand.NewPCG(seed, 0))
				roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return dice.IntN(n) }
				finished := map[string]int{}
				work := func(ctx context.Context, m *worker.Message) worker.Verdict {
					select { // reading the claim and the document
					case <-time.After(time.Duration(roll(300)) * time.Millisecond):
					case <-ctx.Done():
						return worker.Interrupted(context.Cause(ctx))
					}
					if !m.Start() {
						return worker.Interrupted(worker.ErrDraining)
					}
					select { // the model
					case <-time.After(time.Duration(200+roll(2000)) * time.Millisecond):
					case <-ctx.Done():
						return worker.Interrupted(context.Cause(ctx))
					}
					mu.Lock()
					defer mu.Unlock()
					finished[m.ID]++
					return worker.Done(worker.Answered, "succeeded", "")
				}
				var pools []*worker.Pool
				var workers []*worker.Worker
				begin := func() (stop func()) {
					// A client for each receiver: see slow.
					pool, err := worker.NewPool(2, func() (*azservicebus.Client, error) {
						return client(b, slow(func() time.Duration { return time.Duration(1+roll(40)) * time.Millisecond }))
					})
					if err != nil {
						t.Fatal(err)
					}
					w := worker.New(pool, queue, work, &worker.Options{Receivers: 2, Slots: slots})
					pools, workers = append(pools, pool), append(workers, w)
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error, 1)
					go func() { done <- w.Run(ctx) }()
					return func() {
						cancel()
						if err := <-done; err != nil {
							t.Errorf("Run() = %v, want nil", err)
						}
					}
				}
				stops := []func(){begin(), begin()}
				go func() {
					for i := range messages {
						if i%10 == 0 {
							<-time.After(time.Duration(roll(600)) * time.Millisecond)
						}
						b.Send(queue, sbtest.Message{ID: fmt.Sprint(i)})
					}
				}()
				for range generations {
					<-time.After(time.Duration(3000+roll(4000)) * time.Millisecond)
					stops = append(stops, begin())
					stops[0]()
					stops = stops[1:]
				}
				if err := b.Await(t.Context(), queue, func(s sbtest.Stats) bool { return s.Completed == messages }); err != nil {
					t.Fatal(err)
				}
				for _, stop := range stops {
					stop()
				}
				drained, unsettled := int64(0), int64(0)
				for _, w := range workers {
					drained += w.Counts().Drained.Load()
					unsettled += w.Counts().Unsettled.Load()
				}
				s := b.Stats(queue)
				if s.Active+s.Locked+s.DeadLettered+s.LocksExpired != 0 {
					t.Errorf("active %d, locked %d, dead-lettered %d, locks expired %d, want 0, 0, 0, 0", s.Active, s.Locked, s.DeadLettered, s.LocksExpired)
				}
				if int64(s.Abandoned) != drained || int64(s.Deliveries-s.Released) != messages+drained || unsettled != 0 {
					t.Errorf("abandoned %d, deliveries %d, released %d, unsettled %d with %d drained, want every delivery counted",
						s.Abandoned, s.Deliveries, s.Released, unsettled, drained)
				}
				for id, n := range finished {
					if n != 1 {
						t.Errorf("message %s was finished %d times, want once", id, n)
					}
				}
				t.Logf("%d stops, %d messages, %d given back, %d released", generations+2, messages, drained, s.Released)
				for _, p := range pools {
					p.Close(context.Background())
				}
				if err := b.Close(); err != nil {
					t.Errorf("close broker: %v", err)
				}
			})
		})
	}
}

// Whatever breaks, every message ends completed, nothing is dead-lettered, and nothing is left open.
func TestRunSurvivesEverythingAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				dice := rand.New(rand.NewPCG(seed, 1))
				const messages, workers = 300, 3
				var stops []func() error
				b := &sbtest.Server{MaxDeliveryCount: 50, LockDuration: 30 * time.Second}
				if err := b.CreateQueue(queue, nil); err != nil {
					t.Fatal(err)
				}
				for range workers {
					pool, err := worker.NewPool(1, func() (*azservicebus.Client, error) { return client(b, nil) })
					if err != nil {
						t.Fatal(err)
					}
					w := worker.New(pool, queue, func(ctx context.Context, m *worker.Message) worker.Verdict {
						m.Start()
						select {
						case <-time.After(rand.N(20 * time.Second)): // not from the dice: the order of handlers is not repeatable anyway
							return worker.Done(worker.Answered, "succeeded", "")
						case <-ctx.Done():
							return worker.Interrupted(context.Cause(ctx))
						}
					}, &worker.Options{Receivers: 1 + dice.IntN(3), Slots: 4 + dice.IntN(12)})
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error, 1)
					go func() { done <- w.Run(ctx) }()
					stops = append(stops, func() error {
						cancel()
						return errors.Join(<-done, pool.Close(context.Background()))
					})
				}
				for i := range messages {
					b.Send(queue, sbtest.Message{ID: fmt.Sprint(i)})
				}
				conditions := []string{"amqp:link:detach-forced", "com.microsoft:server-busy", "com.microsoft:timeout",
					"com.microsoft:operation-cancelled", "amqp:internal-error", "com.microsoft:entity-disabled", "amqp:connection:forced"}
				faults := []sbtest.Fault{
					{Point: sbtest.OnSettle}, {Point: sbtest.OnSettleReply}, {Point: sbtest.OnSettle, Cut: true},
					{Point: sbtest.OnRequest}, {Point: sbtest.OnRequestReply}, {Point: sbtest.OnRequestReply, Cut: true},
					{Point: sbtest.OnRequest, Status: 500}, {Point: sbtest.OnToken, Status: 401}, {Point: sbtest.OnToken, Cut: true, Status: 500},
					{Point: sbtest.OnHeartbeat}, {Point: sbtest.OnAttachReceiver, Condition: "amqp:resource-limit-exceeded"},
					{Point: sbtest.OnOpen, Condition: "amqp:resource-limit-exceeded"},
				}
				for range 60 {
					<-time.After(time.Duration(dice.IntN(4000)) * time.Millisecond)
					switch dice.IntN(4) {
					case 0:
						b.Cut()
					case 1:
						b.Detach(queue, conditions[dice.IntN(len(conditions))], "")
					case 2:
						b.Inject(sbtest.Fault{Point: sbtest.OnDeliver, Condition: conditions[dice.IntN(len(conditions))]})
					default:
						b.Inject(faults[dice.IntN(len(faults))])
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				if err := b.AwaitEmpty(ctx, queue); err != nil {
					t.Fatalf("queue: %v; it is %+v", err, b.Stats(queue))
				}
				b.Cut()
				<-time.After(2 * time.Minute)
				s, open := b.Stats(queue), b.Totals()
				if s.Completed != messages || s.Buried != 0 {
					t.Errorf("completed %d, dead-lettered %d, want %d, 0", s.Completed, s.Buried, messages)
				}
				if open.OpenLinks != 3*s.Receivers {
					t.Errorf("open links = %d, want 3 for each of %d receivers", open.OpenLinks, s.Receivers)
				}
				for _, stop := range stops {
					if err := stop(); err != nil {
						t.Errorf("stop: %v", err)
					}
				}
				if err := b.Close(); err != nil {
					t.Errorf("close broker: %v", err)
				}
				// The SDK may set up links twice when a line is lost at the moment that it opens; what refreshes the token of
				// the surplus ones finds out at its next turn that its client is closed.
				<-time.After(10 * time.Minute)
			})
		})
	}
}

// hand is a broker and a worker that the test runs by itself.
type hand struct {
	*lab
	done chan error
}

// startOn calls run with a pool; the test ends it before it ends itself.
func startOn(t *testing.T, q *sbtest.QueueOptions, run func(*worker.Pool) error) hand {
	t.Helper()
	b := &sbtest.Server{}
	if err := b.CreateQueue(queue, q); err != nil {
		t.Fatal(err)
	}
	pool, err := worker.NewPool(1, func() (*azservicebus.Client, error) { return client(b, nil) })
	if err != nil {
		t.Fatal(err)
	}
	h := hand{&lab{t: t, broker: b}, make(chan error, 1)}
	go func() { h.done <- run(pool) }()
	t.Cleanup(func() {
		pool.Close(context.Background())
		if err := b.Close(); err != nil {
			t.Errorf("close broker: %v", err)
		}
	})
	return h
}
