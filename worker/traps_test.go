package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
	"millrace/worker"
)

// Each trap of the README is held by the test it names.
func TestREADMENamesATestForEachTrap(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests []byte
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests = append(tests, b...)
	}
	_, table, ok := strings.Cut(string(readme), "| trap |")
	if !ok {
		t.Fatal("README.md has no table of traps")
	}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| ") || len(cells) != 5 {
			continue
		}
		if name := strings.Trim(cells[3], " `"); name != "test" {
			rows++
			if !bytes.Contains(tests, []byte("func "+name+"(t *testing.T)")) {
				t.Errorf("trap %q names the test %q, which does not exist", strings.TrimSpace(cells[1]), name)
			}
		}
	}
	if rows < 10 {
		t.Errorf("rows found = %d, want all of the table", rows)
	}
}

// gate is a handler that answers when it is opened.
type gate struct {
	inHand atomic.Int32
	open   chan struct{}
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) handle(ctx context.Context, m *worker.Message) worker.Verdict {
	m.Start()
	g.inHand.Add(1)
	defer g.inHand.Add(-1)
	select {
	case <-g.open:
		return worker.Done(worker.Answered, "succeeded", "")
	case <-ctx.Done():
		return worker.Interrupted(context.Cause(ctx))
	}
}

func (l *lab) sendMany(n int) {
	l.t.Helper()
	for i := range n {
		l.send(fmt.Sprintf("m%04d", i))
	}
}

// locked waits until n messages have been taken, and a second more, so that handlers have them.
func (l *lab) locked(n int) {
	l.t.Helper()
	l.await(func(s sbtest.Stats) bool { return s.Locked == n })
	<-time.After(time.Second)
}

// once checks that n messages were completed, each on its first delivery.
func (l *lab) once(n int) {
	l.t.Helper()
	s := l.broker.Stats(queue)
	if s.Completed != n || s.Deliveries != n || s.LocksExpired != 0 || s.Abandoned != 0 || s.DeadLettered != 0 {
		l.t.Errorf("completed %d, deliveries %d, locks expired %d, abandoned %d, dead-lettered %d, want %d, %d, 0, 0, 0",
			s.Completed, s.Deliveries, s.LocksExpired, s.Abandoned, s.DeadLettered, n, n)
	}
}

// Trap: a receive on a lost link returns nothing and no error, at once.
func TestRunBacksOffWhenEveryReceiveIsLost(t *testing.T) {
	for _, condition := range []string{"amqp:link:detach-forced", "com.microsoft:server-busy", "amqp:internal-error"} {
		t.Run(condition, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := start(t, nil, answered, &worker.Options{Receivers: 1})
				remove := l.broker.Inject(sbtest.Fault{Point: sbtest.OnDeliver, Condition: condition, Times: -1})
				l.send("a")
				<-time.After(10 * time.Minute)
				if n := l.broker.Stats(queue).Attaches; n < 20 || n > 50 {
					t.Errorf("attaches in 10 minutes = %d, want 20 to 50", n)
				}
				remove()
				began := time.Now()
				l.await(empty)
				if took := time.Since(began); took > 31*time.Second {
					t.Errorf("recovery took %v, want at most 31s", took)
				}
				l.once(1)
			})
		})
	}
}

// Trap: together with messages a receive keeps quiet about a lost link.
func TestRunNoticesALinkLostTogetherWithMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := start(t, nil, answered, &worker.Options{Receivers: 1})
		l.broker.Inject(sbtest.Fault{Point: sbtest.OnDeliver, Condition: "amqp:link:detach-forced", After: 2})
		l.sendMany(5)
		l.await(empty)
		l.once(5)
		if n := l.worker.Counts().Rebuilds.Load(); n != 1 {
			t.Errorf("rebuilds = %d, want 1", n)
		}
	})
}

// Trap: on a link detached with server-busy the client's own goroutine spins. While all slots are taken no receive
// comes to end it; the clock of the bubble would stand still for ever.
func TestRunRestsWhileAllSlotsAreTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		l := start(t, nil, g.handle, &worker.Options{Receivers: 1, Slots: 2})
		l.sendMany(4)
		l.locked(2)
		l.broker.Detach(queue, "com.microsoft:server-busy", "busy")
		<-time.After(time.Hour)
		close(g.open)
		l.await(empty)
		l.once(4)
	})
}

// Trap: the client keeps a connection that the broker closed with an error it takes for final.
func TestRunReplacesAConnectionThatIsClosedForGood(t *testing.T) {
	for _, condition := range []string{"amqp:resource-limit-exceeded", "amqp:not-allowed", "amqp:unauthorized-access", "amqp:connection:forced"} {
		t.Run(condition, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := start(t, nil, answered, &worker.Options{Receivers: 1})
				l.await(func(s sbtest.Stats) bool { return s.Waiting == 1 })
				l.broker.Inject(sbtest.Fault{Point: sbtest.OnOpen, Condition: condition, Times: 2})
				l.broker.Cut()
				synctest.Wait()
				l.send("a")
				began := time.Now()
				l.await(empty)
				if took := time.Since(began); took > 40*time.Second {
					t.Errorf("recovery took %v, want at most 40s", took)
				}
				<-time.After(time.Minute)
				l.once(1)
				if s, n := l.broker.Stats(queue), l.broker.Totals().OpenConnections; s.Receivers != 1 || n != 1 {
					t.Errorf("receivers %d on %d connections, want 1 on 1", s.Receivers, n)
				}
			})
		})
	}
}

// Trap: with all slots taken nothing is received, so nobody is told that the connection died.
func TestRunSettlesAfterTheConnectionDiedWithAllSlotsTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		l := start(t, nil, g.handle, &worker.Options{Receivers: 1, Slots: 8})
		l.sendMany(8)
		l.locked(8)
		l.broker.Cut()
		synctest.Wait()
		close(g.open)
		began := time.Now()
		l.await(empty)
		// 3 s on the dead link, 2 s to find that out, up to 5.2 s of the SDK's first back-off with the dead connection.
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("completing took %v, want at most 12s", took)
		}
		l.once(8)
		if n := l.broker.Totals().Connections; n != 2 {
			t.Errorf("connections = %d, want 2", n)
		}
	})
}

// Trap: the same in the middle of a drain.
func TestRunDrainsOverALostConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		l := start(t, nil, g.handle, &worker.Options{Receivers: 2, Slots: 8})
		l.sendMany(6)
		l.locked(6)
		l.quit()
		<-time.After(5 * time.Second)
		l.broker.Cut()
		synctest.Wait()
		close(g.open)
		if err := l.stop(); err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		l.once(6)
	})
}

// Trap: the SDK sets links up once per caller when many use a receiver that has none.
func TestRunOpensALineOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		l := startOver(t, nil, slow(between(10*time.Millisecond, 40*time.Millisecond)), g.handle, &worker.Options{Receivers: 1, Slots: 40})
		l.sendMany(32)
		l.locked(32)
		l.broker.Cut()
		synctest.Wait()
		close(g.open)
		l.await(empty)
		l.once(32)
		if s := l.broker.Stats(queue); s.Attaches != 2 || s.Receivers != 1 {
			t.Errorf("receiver links attached %d, open %d, want 2, 1", s.Attaches, s.Receivers)
		}
	})
}

// Trap: what the SDK retries on a closed receiver sets up links that nobody closes.
func TestRunLeavesNoLinksBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		l := start(t, &sbtest.QueueOptions{LockDuration: 2 * time.Minute}, g.handle, &worker.Options{Receivers: 1, Slots: 20})
		l.sendMany(16)
		l.locked(16)
		const perLine = 3 // the receiver, and a pair to $management
		for i := range 6 {
			// The connection dies amid the renewals.
			l.broker.Inject(sbtest.Fault{Point: sbtest.OnRequest, Operation: "renew-lock", Cut: true, After: 3 * i})
			<-time.After(30 * time.Second)
			if n := l.broker.Totals().OpenLinks; n != perLine {
				t.Errorf("open links after loss %d = %d, want %d", i, n, perLine)
			}
		}
		close(g.open)
		l.await(empty)
		l.once(16)
	})
}

// Trap: credit of a cancelled receive stays on the link and attracts messages.
func TestRunLeavesNoCreditBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		l := start(t, nil, g.handle, &worker.Options{Receivers: 2, Slots: 16, DrainFor: time.Minute})
		l.sendMany(3)
		l.locked(3)
		l.quit()
		<-time.After(5 * time.Second)
		for i := range 20 {
			l.send(fmt.Sprint("late", i))
		}
		<-time.After(5 * time.Second)
		s := l.broker.Stats(queue)
		if s.Active != 20 || s.Locked != 3 || s.Released != 0 {
			t.Errorf("active %d, locked %d, released %d, want 20, 3, 0", s.Active, s.Locked, s.Released)
		}
		close(g.open)
		l.stop()
		if s := l.broker.Stats(queue); s.Completed != 3 || s.Deliveries != 3 || s.Locked != 0 {
			t.Errorf("completed %d, deliveries %d, locked %d, want 3, 3, 0", s.Completed, s.Deliveries, s.Locked)
		}
	})
}

// Trap: messages under way when a worker stops would stay locked by nobody until their locks end.
func TestRunGivesBackWhatIsUnderWayWhenItStops(t *testing.T) {
	for _, n := range []int{10, 16, 30} { // less than, as much as and more than there is credit for
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := startOver(t, nil, slow(between(50*time.Millisecond, 50*time.Millisecond)), answered, &worker.Options{Receivers: 1, Slots: 16})
				l.await(func(s sbtest.Stats) bool { return s.Waiting == 1 })
				<-time.After(time.Second)
				l.sendMany(n) // on the wire for 50 ms
				l.stop()
				s, drained := l.broker.Stats(queue), int(l.worker.Counts().Drained.Load())
				if s.Locked != 0 || s.Active != n || s.Abandoned != min(n, 16) || s.Abandoned != drained || s.Deliveries != drained {
					t.Errorf("locked %d, active %d, abandoned %d, deliveries %d, drained %d, want 0, %d, and three times %d",
						s.Locked, s.Active, s.Abandoned, s.Deliveries, drained, n, min(n, 16))
				}
			})
		})
	}
}

// Trap: a stop while a receive waits 20 ms for more after its first messages.
func TestRunAbandonsWhatArrivesWithTheStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := start(t, nil, answered, &worker.Options{Receivers: 1})
		l.await(func(s sbtest.Stats) bool { return s.Waiting == 1 })
		l.send("a", "b")
		synctest.Wait() // the receive has both and waits
		l.stop()
		s := l.broker.Stats(queue)
		if drained := l.worker.Counts().Drained.Load(); s.Locked != 0 || s.Active != 2 || drained != 2 || s.Deliveries != 2 {
			t.Errorf("locked %d, active %d, drained %d, deliveries %d, want 0, 2, 2, 2", s.Locked, s.Active, drained, s.Deliveries)
		}
	})
}

// Trap: odd properties. One breaks the client's decoder and with it the link, the others make a receive panic; both
// take their neighbours with them.
func TestRunOutlivesOddMessages(t *testing.T) {
	for _, tc := range []struct {
		name    string
		section []byte
	}{
		{"decimal property", property("price", append([]byte{0x94}, make([]byte, 16)...)...)},
		{"dead-letter reason is null", property("DeadLetterReason", 0x40)},
		{"dead-letter description is a number", property("DeadLetterErrorDescription", 0x54, 7)},
		{"partition key is a number", annotation("x-opt-partition-key", 0x54, 7)},
		{"scheduled time is a string", annotation("x-opt-scheduled-enqueue-time", 0xa1, 1, 'x')},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const limit = 5
				var log bytes.Buffer
				l := start(t, &sbtest.QueueOptions{LockDuration: time.Minute, MaxDeliveryCount: limit}, answered,
					&worker.Options{Receivers: 1, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
				synctest.Wait()
				// All at once, so that the odd one has company on both sides.
				l.send("before")
				if err := l.broker.Send(queue, sbtest.Message{Raw: rawMessage("odd", tc.section)}); err != nil {
					t.Fatal(err)
				}
				l.sendMany(20)
				l.await(empty)
				l.stop()
				s := l.broker.Stats(queue)
				if s.Completed != 21 || s.Buried != 1 || s.LocksExpired > 21+limit {
					t.Errorf("completed %d, dead-lettered %d, locks expired %d, want 21, 1, at most %d", s.Completed, s.Buried, s.LocksExpired, 21+limit)
				}
				for i := range 20 {
					if n := l.broker.DeliveriesOf(queue, fmt.Sprintf("m%04d", i)); n > 2 {
						t.Errorf("deliveries of neighbour %d = %d, want at most 2", i, n)
					}
				}
				dead := l.broker.Peek(queue+"/$DeadLetterQueue", 0)
				if len(dead) != 1 || dead[0].DeadLetterReason() != "MaxDeliveryCountExceeded" {
					t.Errorf("dead letters = %d, want the odd message by its delivery count", len(dead))
				}
				if !strings.Contains(log.String(), "receiver link lost") {
					t.Errorf("log does not tell of the lost link")
				}
			})
		})
	}
}

func TestRunHandsOnWhateverIDAMessageHas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		got := make(chan worker.Message, 2)
		l := start(t, nil, func(_ context.Context, m *worker.Message) worker.Verdict {
			got <- *m
			return worker.Skip("other_event")
		}, nil)
		// A UUID as message id, and no properties at all (AMQP 1.0 part 3.2.4).
		uuid := append([]byte{0x00, 0x53, 0x73, 0xc0, 18, 1, 0x98}, make([]byte, 16)...)
		body := []byte{0x00, 0x53, 0x75, 0xa0, 1, 'x'}
		for _, raw := range [][]byte{append(uuid, body...), body} {
			if err := l.broker.Send(queue, sbtest.Message{Raw: raw}); err != nil {
				t.Fatal(err)
			}
		}
		l.await(empty)
		for range 2 {
			if m := <-got; m.Delivery != 1 || string(m.Body) != "x" {
				t.Errorf("delivery, body = %d, %q, want 1, x", m.Delivery, m.Body)
			}
		}
		l.once(2)
	})
}

// Trap: a network that carries nothing and closes nothing; the client notices after a minute of silence.
func TestRunRecoversFromASilentNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		var dark darkness
		l := startOver(t, &sbtest.QueueOptions{LockDuration: 5 * time.Minute}, slow(dark.latency), g.handle,
			&worker.Options{Receivers: 1, Slots: 8})
		l.sendMany(4)
		l.locked(4)
		dark.Store(true)
		<-time.After(30 * time.Second)
		dark.Store(false) // for new connections; nothing overtakes on the old one
		<-time.After(90 * time.Second)
		close(g.open)
		began := time.Now()
		l.await(empty)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("completing after the silence took %v, want at most 10s", took)
		}
		l.once(4)
	})
}

// Trap: the same while draining. The process must not outstay its grace period.
func TestRunStopsOverASilentNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		var dark darkness
		b := &sbtest.Server{}
		if err := b.CreateQueue(queue, nil); err != nil {
			t.Fatal(err)
		}
		pool, err := worker.NewPool(1, func() (*azservicebus.Client, error) { return client(b, slow(dark.latency)) })
		if err != nil {
			t.Fatal(err)
		}
		w := worker.New(pool, queue, g.handle, &worker.Options{Receivers: 1, Slots: 8, DrainFor: 10 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		for i := range 4 {
			b.Send(queue, sbtest.Message{ID: fmt.Sprint(i)})
		}
		b.Await(t.Context(), queue, func(s sbtest.Stats) bool { return s.Locked == 4 })
		<-time.After(time.Second)
		dark.Store(true)
		began := time.Now()
		cancel()
		err = <-done
		if took := time.Since(began); took > 46*time.Second {
			t.Errorf("Run() ended with %v after %v, want at most 46s", err, took)
		}
		pool.Close(context.Background())
		b.Close()
	})
}

// Trap: a broker that sends no keep-alive frames is dropped by the client after a minute.
func TestRunRecoversFromLostHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		l := start(t, &sbtest.QueueOptions{LockDuration: time.Minute}, g.handle, &worker.Options{Receivers: 2, Slots: 8})
		remove := l.broker.Inject(sbtest.Fault{Point: sbtest.OnHeartbeat, Times: -1})
		<-time.After(5 * time.Minute)
		if n := l.broker.Totals().Connections; n < 3 || n > 8 {
			t.Errorf("connections in 5 minutes = %d, want 3 to 8", n)
		}
		l.sendMany(6)
		<-time.After(5 * time.Minute)
		remove()
		close(g.open)
		l.await(empty)
		l.once(6)
	})
}

func TestRunRecoversFromARefusedToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := start(t, nil, answered, &worker.Options{Receivers: 2})
		l.send("before")
		l.await(empty)
		remove := l.broker.Inject(sbtest.Fault{Point: sbtest.OnToken, Status: 401, Description: "Unauthorized", Times: -1})
		<-time.After(6 * time.Minute) // the SDK's refresh gives up
		l.broker.Detach(queue, "amqp:unauthorized-access", "expired")
		<-time.After(30 * time.Minute)
		if n := l.broker.Totals().Connections; n > 80 {
			t.Errorf("connections in half an hour = %d, want at most 80", n)
		}
		remove()
		began := time.Now()
		l.send("after")
		l.await(empty)
		if took := time.Since(began); took > 31*time.Second {
			t.Errorf("recovery took %v, want at most 31s", took)
		}
		l.once(2)
	})
}

func TestRunWaitsForAQueueThatIsNotThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		l := start(t, nil, answered, &worker.Options{Receivers: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		remove := l.broker.Inject(sbtest.Fault{Point: sbtest.OnAttachReceiver, Condition: "com.microsoft:entity-disabled",
			Description: "The queue is disabled.", Times: -1})
		l.broker.Cut()
		<-time.After(time.Hour)
		if n := l.broker.Totals().Connections; n > 80 {
			t.Errorf("connections in an hour = %d, want at most 80", n)
		}
		remove()
		l.send("a")
		began := time.Now()
		l.await(empty)
		if took := time.Since(began); took > 31*time.Second {
			t.Errorf("recovery took %v, want at most 31s", took)
		}
		l.stop()
		if !strings.Contains(log.String(), "entity-disabled") {
			t.Error("the log does not say why nothing was received")
		}
	})
}
