package sbtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
)

func TestServerUnknownQueueIsNotFound(t *testing.T) {
	srv := &sbtest.Server{}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		err := newSender(t, client, "other").SendMessage(ctx, &azservicebus.Message{}, nil)
		if code(err) != azservicebus.CodeNotFound {
			t.Errorf("SendMessage to an unknown queue = %v, want %s", err, azservicebus.CodeNotFound)
		}
		_, err = newReceiver(t, client, "other", nil).ReceiveMessages(ctx, 1, nil)
		if code(err) != azservicebus.CodeNotFound {
			t.Errorf("ReceiveMessages from an unknown queue = %v, want %s", err, azservicebus.CodeNotFound)
		}
		if err := srv.Send("other", sbtest.Message{}); !errors.Is(err, sbtest.ErrNoQueue) {
			t.Errorf("Send to an unknown queue = %v, want %v", err, sbtest.ErrNoQueue)
		}
	})
}

func TestServerAutoCreate(t *testing.T) {
	srv := &sbtest.Server{AutoCreate: true}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		if err := newSender(t, client, "other").SendMessage(ctx, &azservicebus.Message{}, nil); err != nil {
			t.Fatal(err)
		}
		if st := srv.Stats("OTHER"); st.Active != 1 {
			t.Errorf("active = %d, want 1", st.Active)
		}
		if id := srv.Peek("other", 1)[0].ID; id == "" {
			t.Error("a message without id got none")
		}
	})
}

func TestServerScheduleAndCancel(t *testing.T) {
	srv := &sbtest.Server{}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		s, r := newSender(t, client, "q"), newReceiver(t, client, "q", nil)
		begun := time.Now()
		seqs, err := s.ScheduleMessages(ctx, []*azservicebus.Message{
			{Body: []byte("a")}, {Body: []byte("never")},
		}, begun.Add(time.Minute), nil)
		if err != nil {
			t.Fatal(err)
		}
		at := begun.Add(2 * time.Minute) // as an annotation, too
		if err := s.SendMessage(ctx, &azservicebus.Message{Body: []byte("b"), ScheduledEnqueueTime: &at}, nil); err != nil {
			t.Fatal(err)
		}
		peeked, err := r.PeekMessages(ctx, 10, nil)
		if err != nil || len(peeked) != 3 {
			t.Fatalf("PeekMessages = %d, %v, want 3", len(peeked), err)
		}
		if peeked[0].State != azservicebus.MessageStateScheduled {
			t.Errorf("state = %v, want scheduled", peeked[0].State)
		}
		if err := s.CancelScheduledMessages(ctx, seqs[1:], nil); err != nil {
			t.Fatal(err)
		}
		if err := s.CancelScheduledMessages(ctx, seqs[1:], nil); code(err) != azservicebus.CodeNotFound {
			t.Errorf("cancelling twice = %v, want %s", err, azservicebus.CodeNotFound)
		}
		for i, want := range []string{"a", "b"} {
			m := receive(t, ctx, r, 1)[0]
			if string(m.Body) != want {
				t.Errorf("message %d = %q, want %q", i, m.Body, want)
			}
			if due := begun.Add(time.Duration(i+1) * time.Minute); time.Since(due).Abs() > time.Second {
				t.Errorf("%q came %v after its time", want, time.Since(due))
			}
			if err := r.CompleteMessage(ctx, m, nil); err != nil {
				t.Fatal(err)
			}
			if i == 0 && *m.SequenceNumber == seqs[0] {
				t.Error("a scheduled message kept its number when it became active")
			}
		}
	})
}

func TestServerPeekSeesLockedMessages(t *testing.T) {
	srv := &sbtest.Server{}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		for i := range 60 {
			send(t, srv, fmt.Sprint(i))
		}
		r := newReceiver(t, client, "q", nil)
		receive(t, ctx, r, 10)
		var ids []string
		for len(ids) < 60 {
			got, err := r.PeekMessages(ctx, 25, nil)
			if err != nil || len(got) == 0 {
				t.Fatalf("PeekMessages after %d = %d messages, %v", len(ids), len(got), err)
			}
			for _, m := range got {
				ids = append(ids, m.MessageID)
			}
		}
		for i, id := range ids {
			if id != fmt.Sprint(i) {
				t.Fatalf("peeked message %d = %q", i, id)
			}
		}
		if got, err := r.PeekMessages(ctx, 1, nil); err != nil || len(got) != 0 {
			t.Errorf("PeekMessages at the end = %d messages, %v, want none", len(got), err)
		}
		if st := srv.Stats("q"); st.Deliveries != 10 || st.Locked != 10 || st.Active != 50 {
			t.Errorf("stats = %+v", st)
		}
	})
}

func TestServerTimeToLive(t *testing.T) {
	srv := &sbtest.Server{LockDuration: time.Minute}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		err := srv.CreateQueue("dlq", &sbtest.QueueOptions{DefaultTTL: time.Minute, DeadLetterOnExpiry: true})
		if err != nil {
			t.Fatal(err)
		}
		ttl := 10 * time.Second
		if err := newSender(t, client, "q").SendMessage(ctx, &azservicebus.Message{TimeToLive: &ttl}, nil); err != nil {
			t.Fatal(err)
		}
		if err := newSender(t, client, "dlq").SendMessage(ctx, &azservicebus.Message{}, nil); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := srv.AwaitEmpty(ctx, "q"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun).Round(time.Second); took != 10*time.Second || srv.Stats("q").Dropped != 1 {
			t.Errorf("message went after %v with %+v, want 10s and one dropped", took, srv.Stats("q"))
		}
		if err := srv.AwaitEmpty(ctx, "dlq"); err != nil {
			t.Fatal(err)
		}
		dead := srv.Peek("dlq/$DeadLetterQueue", 0)
		if len(dead) != 1 || dead[0].DeadLetterReason() != "TTLExpiredException" {
			t.Errorf("dead letters = %+v", dead)
		}
	})
}

func TestServerRefusesTooLargeMessages(t *testing.T) {
	srv := &sbtest.Server{MaxMessageSize: 10_000}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		s := newSender(t, client, "q")
		err := s.SendMessage(ctx, &azservicebus.Message{Body: make([]byte, 10_001)}, nil)
		if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
			t.Errorf("SendMessage = %v, want ErrMessageTooLarge", err)
		}
		if err := s.SendMessage(ctx, &azservicebus.Message{Body: make([]byte, 9_000)}, nil); err != nil {
			t.Error(err)
		}
	})
}

// Messages of several frames, in both directions, through a small window.
func TestServerLargeMessages(t *testing.T) {
	srv := &sbtest.Server{MaxMessageSize: 1 << 20}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		s, r := newSender(t, client, "q"), newReceiver(t, client, "q", nil)
		for size := range 20 {
			body := make([]byte, size*50_000)
			for i := range body {
				body[i] = byte(i * 7)
			}
			if err := s.SendMessage(ctx, &azservicebus.Message{Body: body}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for size, m := range receive(t, ctx, r, 20) {
			if len(m.Body) != size*50_000 {
				t.Fatalf("body of message %d has %d bytes", size, len(m.Body))
			}
			for i, b := range m.Body {
				if b != byte(i*7) {
					t.Fatalf("byte %d of message %d = %d", i, size, b)
				}
			}
			if err := r.CompleteMessage(ctx, m, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestServerKeepsIdleConnectionsAlive(t *testing.T) {
	srv := &sbtest.Server{}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		r := newReceiver(t, client, "q", nil)
		go func() {
			<-time.After(10 * time.Minute)
			srv.Send("q", sbtest.Message{ID: "late"})
		}()
		if m := receive(t, ctx, r, 1)[0]; m.MessageID != "late" {
			t.Errorf("received %q", m.MessageID)
		}
		if got := srv.Totals().Connections; got != 1 {
			t.Errorf("connections = %d, want 1", got)
		}
	})
}

func TestServerLinkIdle(t *testing.T) {
	srv := &sbtest.Server{LinkIdle: 10 * time.Minute}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		r := newReceiver(t, client, "q", nil)
		begun := time.Now()
		msgs, err := r.ReceiveMessages(ctx, 1, nil)
		if len(msgs) != 0 || err != nil {
			t.Errorf("ReceiveMessages = %d messages, %v, want none and nil", len(msgs), err)
		}
		if idle := time.Since(begun); idle < 10*time.Minute || idle > 13*time.Minute {
			t.Errorf("detached after %v, want soon after 10m", idle)
		}
	})
}

func TestServerFaults(t *testing.T) {
	const q = "q"
	for _, tc := range []struct {
		name  string
		fault sbtest.Fault
		run   func(t *testing.T, ctx context.Context, c *azservicebus.Client, srv *sbtest.Server)
	}{
		{
			"a rejected send is not stored", sbtest.Fault{Point: sbtest.OnSend, Condition: "amqp:resource-limit-exceeded"},
			func(t *testing.T, ctx context.Context, c *azservicebus.Client, srv *sbtest.Server) {
				if err := newSender(t, c, q).SendMessage(ctx, &azservicebus.Message{}, nil); err == nil || srv.Stats(q).Enqueued != 0 {
					t.Errorf("SendMessage = %v with %d stored, want an error and 0", err, srv.Stats(q).Enqueued)
				}
			},
		},
		{
			"a send cut before its answer is sent twice", sbtest.Fault{Point: sbtest.OnSendReply, Cut: true},
			func(t *testing.T, ctx context.Context, c *azservicebus.Client, srv *sbtest.Server) {
				if err := newSender(t, c, q).SendMessage(ctx, &azservicebus.Message{}, nil); err != nil || srv.Stats(q).Enqueued != 2 {
					t.Errorf("SendMessage = %v with %d stored, want nil and 2", err, srv.Stats(q).Enqueued)
				}
			},
		},
		{
			"a lost answer hangs Complete", sbtest.Fault{Point: sbtest.OnSettleReply, After: 1},
			func(t *testing.T, ctx context.Context, c *azservicebus.Client, srv *sbtest.Server) {
				send(t, srv, "a", "b")
				r := newReceiver(t, c, q, nil)
				msgs := receive(t, ctx, r, 2)
				if err := r.CompleteMessage(ctx, msgs[0], nil); err != nil {
					t.Fatal(err)
				}
				short, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				if err := r.CompleteMessage(short, msgs[1], nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("CompleteMessage = %v, want deadline exceeded", err)
				}
				if st := srv.Stats(q); st.Completed != 2 {
					t.Errorf("completed = %d, want 2", st.Completed)
				}
			},
		},
		{
			"a refused attach is an error", sbtest.Fault{Point: sbtest.OnAttachReceiver, Condition: "amqp:unauthorized-access", Queue: q},
			func(t *testing.T, ctx context.Context, c *azservicebus.Client, srv *sbtest.Server) {
				if _, err := newReceiver(t, c, q, nil).ReceiveMessages(ctx, 1, nil); err == nil {
					t.Error("ReceiveMessages = nil, want an error")
				}
			},
		},
		{
			"a dead link returns nothing for ever", sbtest.Fault{Point: sbtest.OnDeliver, Condition: "com.microsoft:server-busy"},
			func(t *testing.T, ctx context.Context, c *azservicebus.Client, srv *sbtest.Server) {
				send(t, srv, "a")
				r := newReceiver(t, c, q, nil)
				for range 3 {
					if msgs, err := r.ReceiveMessages(ctx, 1, nil); len(msgs) != 0 || err != nil {
						t.Fatalf("ReceiveMessages = %d messages, %v, want none and nil", len(msgs), err)
					}
				}
				r.Close(ctx)
				receive(t, ctx, newReceiver(t, c, q, nil), 1)
			},
		},
		{
			"an expired token is unauthorized", sbtest.Fault{Point: sbtest.OnToken, Status: 401, Description: "ExpiredToken"},
			func(t *testing.T, ctx context.Context, c *azservicebus.Client, srv *sbtest.Server) {
				err := newSender(t, c, q).SendMessage(ctx, &azservicebus.Message{}, nil)
				if code(err) != azservicebus.CodeUnauthorizedAccess {
					t.Errorf("SendMessage = %v, want %s", err, azservicebus.CodeUnauthorizedAccess)
				}
			},
		},
		{
			"a failed renewal is retried by the SDK", sbtest.Fault{Point: sbtest.OnRequest, Operation: "renew-lock", Status: 503, Times: 1},
			func(t *testing.T, ctx context.Context, c *azservicebus.Client, srv *sbtest.Server) {
				send(t, srv, "a")
				r := newReceiver(t, c, q, nil)
				if err := r.RenewMessageLock(ctx, receive(t, ctx, r, 1)[0], nil); err != nil || srv.Stats(q).Renewals != 1 {
					t.Errorf("RenewMessageLock = %v with %d renewals, want nil and 1", err, srv.Stats(q).Renewals)
				}
			},
		},
		{
			"without heartbeats the client gives up", sbtest.Fault{Point: sbtest.OnHeartbeat, Times: -1},
			func(t *testing.T, ctx context.Context, c *azservicebus.Client, srv *sbtest.Server) {
				begun := time.Now()
				msgs, err := newReceiver(t, c, q, nil).ReceiveMessages(ctx, 1, nil)
				if took := time.Since(begun).Round(time.Second); len(msgs) != 0 || err != nil || took != time.Minute {
					t.Errorf("ReceiveMessages = %d messages, %v after %v, want none, nil after 1m", len(msgs), err, took)
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := &sbtest.Server{}
			inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
				defer srv.Inject(tc.fault)()
				tc.run(t, ctx, client, srv)
			})
		})
	}
}

func TestServerDetachIsRecovered(t *testing.T) {
	srv := &sbtest.Server{}
	inBubble(t, srv, func(t *testing.T, ctx context.Context, client *azservicebus.Client) {
		r := newReceiver(t, client, "q", nil)
		go func() {
			srv.Await(ctx, "q", func(st sbtest.Stats) bool { return st.Waiting == 1 })
			if n := srv.Detach("q", "amqp:link:detach-forced", "maintenance"); n != 1 {
				t.Errorf("Detach() = %d, want 1", n)
			}
			send(t, srv, "a")
		}()
		if m := receive(t, ctx, r, 1)[0]; m.MessageID != "a" {
			t.Errorf("received %q", m.MessageID)
		}
		if st := srv.Stats("q"); st.Attaches != 2 || st.Receivers != 1 {
			t.Errorf("stats = %+v", st)
		}
	})
}

func TestServerCloseIsIdempotentAndJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, &sbtest.Server{}, "q")
		c, err := srv.Dial(t.Context()) // a client that never says anything
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := srv.Close(); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		if _, err := srv.Dial(t.Context()); !errors.Is(err, sbtest.ErrClosed) {
			t.Errorf("Dial after Close = %v, want %v", err, sbtest.ErrClosed)
		}
		if err := srv.Send("q", sbtest.Message{}); !errors.Is(err, sbtest.ErrClosed) {
			t.Errorf("Send after Close = %v, want %v", err, sbtest.ErrClosed)
		}
	})
}
