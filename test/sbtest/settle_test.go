package sbtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"millrace/test/sbtest"
)

// inBubble runs f with a server, a queue "q" and a real client in a bubble.
func inBubble(t *testing.T, srv *sbtest.Server, f func(t *testing.T, ctx context.Context, client *azservicebus.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		newServer(t, srv, "q")
		client := dialClient(t, srv)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		defer closeAll(t, client, srv)
		f(t, ctx, client)
	})
}

func send(t *testing.T, srv *sbtest.Server, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := srv.Send("q", sbtest.Message{ID: id, Body: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
}

func code(err error) azservicebus.Code {
	var e *azservicebus.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestServerAbandonDeadLettersAtMaximum(t *testing.T) {
	srv := &sbtest.Server{MaxDeliveryCount: 3}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		send(t, srv, "a")
		r := newReceiver(t, client, "q", nil)
		for want := uint32(1); want <= 3; want++ {
			m := receive(t, ctx, r, 1)[0]
			if m.DeliveryCount != want {
				t.Errorf("DeliveryCount = %d, want %d", m.DeliveryCount, want)
			}
			err := r.AbandonMessage(ctx, m, &azservicebus.AbandonMessageOptions{
				PropertiesToModify: map[string]any{"try": int64(want)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		dead := newReceiver(t, client, "q", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
		m := receive(t, ctx, dead, 1)[0]
		if m.DeadLetterReason == nil || *m.DeadLetterReason != "MaxDeliveryCountExceeded" {
			t.Errorf("DeadLetterReason = %v, want MaxDeliveryCountExceeded", m.DeadLetterReason)
		}
		if m.DeadLetterSource == nil || *m.DeadLetterSource != "q" {
			t.Errorf("DeadLetterSource = %v, want q", m.DeadLetterSource)
		}
		if m.DeliveryCount != 4 || m.ApplicationProperties["try"] != int64(3) {
			t.Errorf("count %d, properties %v, want 4 and try=3", m.DeliveryCount, m.ApplicationProperties)
		}
		for range 12 { // no maximum and no counting here
			if err := dead.AbandonMessage(ctx, m, nil); err != nil {
				t.Fatal(err)
			}
			if m = receive(t, ctx, dead, 1)[0]; m.DeliveryCount != 4 {
				t.Fatalf("DeliveryCount in the dead-letter queue = %d, want 4", m.DeliveryCount)
			}
		}
		if err := dead.CompleteMessage(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
		st := srv.Stats("q")
		if st.DeadLettered != 0 || st.Buried != 1 || st.Abandoned != 3 || st.Active+st.Locked != 0 {
			t.Errorf("stats = %+v", st)
		}
	})
}

func TestServerDeadLetterKeepsReason(t *testing.T) {
	srv := &sbtest.Server{}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		send(t, srv, "a", "b")
		r := newReceiver(t, client, "q", nil)
		msgs := receive(t, ctx, r, 2)
		reason, description := "malformed", "no tenant"
		o := &azservicebus.DeadLetterOptions{
			Reason: &reason, ErrorDescription: &description, PropertiesToModify: map[string]any{"seen": true},
		}
		if err := r.DeadLetterMessage(ctx, msgs[0], o); err != nil {
			t.Fatal(err)
		}
		if err := r.DeadLetterMessage(ctx, &azservicebus.ReceivedMessage{LockToken: msgs[1].LockToken}, o); err != nil {
			t.Fatal(err) // through $management
		}
		got := srv.Peek("q/$DeadLetterQueue", 0)
		if len(got) != 2 {
			t.Fatalf("dead letters = %d, want 2", len(got))
		}
		for i, id := range []string{"a", "b"} {
			m := got[i]
			if m.ID != id || m.DeadLetterReason() != reason || m.DeadLetterErrorDescription() != description ||
				m.DeadLetterSource != "q" || m.DeliveryCount != 0 || string(m.Body) != id {
				t.Errorf("dead letter %d = %+v", i, m)
			}
		}
		if got[0].ApplicationProperties["seen"] != true {
			t.Errorf("properties = %v, want seen=true", got[0].ApplicationProperties)
		}
	})
}

func TestServerLockExpires(t *testing.T) {
	srv := &sbtest.Server{LockDuration: 30 * time.Second}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		send(t, srv, "a")
		first := newReceiver(t, client, "q", nil)
		lost := receive(t, ctx, first, 1)[0]
		taken := time.Now()
		second := newReceiver(t, client, "q", nil)
		again := receive(t, ctx, second, 1)[0]
		if waited := time.Since(taken).Round(time.Second); waited != 30*time.Second {
			t.Errorf("redelivered after %v, want 30s", waited)
		}
		if again.DeliveryCount != 2 || again.SequenceNumber == nil || *again.SequenceNumber != *lost.SequenceNumber {
			t.Errorf("redelivery has count %d and number %v, want 2 and %d", again.DeliveryCount, again.SequenceNumber, *lost.SequenceNumber)
		}
		if err := first.CompleteMessage(ctx, lost, nil); code(err) != azservicebus.CodeLockLost {
			t.Errorf("CompleteMessage after expiry = %v, want %s", err, azservicebus.CodeLockLost)
		}
		if err := first.RenewMessageLock(ctx, lost, nil); code(err) != azservicebus.CodeLockLost {
			t.Errorf("RenewMessageLock after expiry = %v, want %s", err, azservicebus.CodeLockLost)
		}
		if err := second.CompleteMessage(ctx, again, nil); err != nil {
			t.Fatal(err)
		}
		if st := srv.Stats("q"); st.LocksExpired != 1 || st.Completed != 1 {
			t.Errorf("stats = %+v", st)
		}
	})
}

func TestServerRenewalHoldsLockForTenMinutes(t *testing.T) {
	srv := &sbtest.Server{LockDuration: 30 * time.Second}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		send(t, srv, "a")
		r := newReceiver(t, client, "q", nil)
		m := receive(t, ctx, r, 1)[0]
		for range 30 {
			<-time.After(20 * time.Second)
			if err := r.RenewMessageLock(ctx, m, nil); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(*m.LockedUntil); left < 29*time.Second {
				t.Fatalf("lock has %v left after a renewal, want 30s", left)
			}
		}
		if err := r.CompleteMessage(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
		if st := srv.Stats("q"); st.Renewals != 30 || st.LocksExpired != 0 || st.Completed != 1 {
			t.Errorf("stats = %+v", st)
		}
	})
}

// After a lost connection the SDK settles by token through $management, while
// the link of the message is gone. The call that notices the loss pays one
// back-off of the SDK, about 4 s.
func TestServerCutKeepsLocks(t *testing.T) {
	srv := &sbtest.Server{}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		send(t, srv, "a", "b")
		r := newReceiver(t, client, "q", nil)
		msgs := receive(t, ctx, r, 2)
		if n := srv.Cut(); n != 1 {
			t.Fatalf("Cut() = %d, want 1", n)
		}
		if err := srv.Await(ctx, "q", func(st sbtest.Stats) bool { return st.Receivers == 0 }); err != nil {
			t.Fatal(err)
		}
		if st := srv.Stats("q"); st.Locked != 2 {
			t.Fatalf("locked = %d, want 2", st.Locked)
		}
		begun := time.Now()
		byToken := func(m *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage {
			return &azservicebus.ReceivedMessage{LockToken: m.LockToken}
		}
		if err := r.RenewMessageLock(ctx, byToken(msgs[0]), nil); err != nil {
			t.Fatal(err)
		}
		if err := r.CompleteMessage(ctx, byToken(msgs[0]), nil); err != nil {
			t.Fatal(err)
		}
		if err := r.AbandonMessage(ctx, byToken(msgs[1]), nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("settling by token took %v, want one back-off of about 4s", took)
		}
		if m := receive(t, ctx, r, 1)[0]; m.MessageID != "b" || m.DeliveryCount != 2 {
			t.Errorf("received %q with count %d, want b with 2", m.MessageID, m.DeliveryCount)
		}
	})
}

// A receiver whose call was cancelled leaves its credit behind; what that
// attracts the SDK releases, which must not count.
func TestServerReleaseDoesNotCount(t *testing.T) {
	srv := &sbtest.Server{MaxDeliveryCount: 2}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		idle := newReceiver(t, client, "q", nil)
		short, cancel := context.WithTimeout(ctx, time.Second)
		if _, err := idle.ReceiveMessages(short, 10, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("ReceiveMessages on an empty queue = %v, want deadline", err)
		}
		cancel()
		send(t, srv, "1", "2", "3", "4", "5")
		if err := srv.Await(ctx, "q", func(st sbtest.Stats) bool { return st.Released >= 10 }); err != nil {
			t.Fatal(err)
		}
		r := newReceiver(t, client, "q", nil)
		for _, m := range receive(t, ctx, r, 5) {
			if m.DeliveryCount != 1 {
				t.Errorf("DeliveryCount of %s = %d, want 1", m.MessageID, m.DeliveryCount)
			}
			if err := r.CompleteMessage(ctx, m, nil); err != nil {
				t.Fatal(err)
			}
		}
		if st := srv.Stats("q"); st.Buried != 0 {
			t.Errorf("dead-lettered = %d, want 0", st.Buried)
		}
	})
}

func TestServerReceiveAndDelete(t *testing.T) {
	srv := &sbtest.Server{}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		send(t, srv, "a", "b")
		r := newReceiver(t, client, "q", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		receive(t, ctx, r, 2)
		if st := srv.Stats("q"); st.Completed != 2 || st.Locked != 0 {
			t.Errorf("stats = %+v", st)
		}
	})
}

func TestServerDefer(t *testing.T) {
	srv := &sbtest.Server{}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		send(t, srv, "a")
		r := newReceiver(t, client, "q", nil)
		m := receive(t, ctx, r, 1)[0]
		if err := r.DeferMessage(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
		if got := srv.Peek("q", 0)[0].State; got != "deferred" {
			t.Errorf("state = %q, want deferred", got)
		}
		for _, want := range []uint32{1, 2} {
			got, err := r.ReceiveDeferredMessages(ctx, []int64{*m.SequenceNumber}, nil)
			if err != nil || len(got) != 1 {
				t.Fatalf("ReceiveDeferredMessages = %d messages, %v", len(got), err)
			}
			if got[0].DeliveryCount != want || got[0].State != azservicebus.MessageStateDeferred {
				t.Errorf("count %d, state %v, want %d and deferred", got[0].DeliveryCount, got[0].State, want)
			}
			if err := r.AbandonMessage(ctx, got[0], nil); err != nil {
				t.Fatal(err)
			}
		}
		got, err := r.ReceiveDeferredMessages(ctx, []int64{*m.SequenceNumber}, nil)
		if err != nil || len(got) != 1 {
			t.Fatalf("ReceiveDeferredMessages = %d messages, %v", len(got), err)
		}
		if err := r.CompleteMessage(ctx, got[0], nil); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ReceiveDeferredMessages(ctx, []int64{*m.SequenceNumber}, nil); code(err) != azservicebus.CodeNotFound {
			t.Errorf("ReceiveDeferredMessages of a completed message = %v, want %s", err, azservicebus.CodeNotFound)
		}
	})
}

func TestServerMessagesSurviveRandomHandling(t *testing.T) {
	const n = 400
	srv := newServer(t, &sbtest.Server{LockDuration: time.Minute, MaxDeliveryCount: 1000}, "q")
	client := tcpClient(t, srv)
	defer closeAll(t, client, srv)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for i := range n {
		send(t, srv, fmt.Sprint(i))
	}
	var mu sync.Mutex
	done := map[string]int{}
	stop, finish := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range 4 {
		r := newReceiver(t, client, "q", nil)
		wg.Go(func() {
			for stop.Err() == nil {
				msgs, err := r.ReceiveMessages(stop, 1+rand.IntN(20), nil)
				if err != nil {
					return
				}
				var each sync.WaitGroup
				for _, m := range msgs {
					each.Go(func() {
						var err error
						switch rand.IntN(4) {
						case 0:
							err = r.AbandonMessage(ctx, m, nil)
						case 1:
							err = r.RenewMessageLock(ctx, m, nil)
							if err == nil {
								err = r.AbandonMessage(ctx, &azservicebus.ReceivedMessage{LockToken: m.LockToken}, nil)
							}
						default:
							err = r.CompleteMessage(ctx, m, nil)
							mu.Lock()
							done[m.MessageID]++
							mu.Unlock()
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
				each.Wait()
			}
		})
	}
	err := srv.AwaitEmpty(ctx, "q")
	finish()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for i := range n {
		want[fmt.Sprint(i)] = 1
	}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Errorf("completions per message (-want +got):\n%s", diff)
	}
	if st := srv.Stats("q"); st.Completed != n || st.Buried != 0 || st.LocksExpired != 0 {
		t.Errorf("stats = %+v", st)
	}
}
