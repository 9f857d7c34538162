package sbtest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
)

// BenchmarkReceiveComplete is the SDK over loopback TCP on one connection; one
// operation is one message received and completed.
func BenchmarkReceiveComplete(b *testing.B) {
	for _, shape := range []struct{ receivers, completers int }{{1, 16}, {4, 16}, {16, 16}} {
		b.Run(fmt.Sprintf("receivers=%d/completers=%d", shape.receivers, shape.completers), func(b *testing.B) {
			srv := newServer(b, &sbtest.Server{}, "q")
			client := tcpClient(b, srv)
			defer closeAll(b, client, srv)
			body := make([]byte, 100)
			for range b.N {
				if err := srv.Send("q", sbtest.Message{Body: body}); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			start := time.Now()
			drainQueue(b, client, srv, shape.receivers, shape.completers, b.N)
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "msgs/s")
		})
	}
}

// drainQueue completes n messages with the given number of receivers, each with
// its own completers.
func drainQueue(b testing.TB, client *azservicebus.Client, srv *sbtest.Server, receivers, completers, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range receivers {
		r := newReceiver(b, client, "q", nil)
		msgs := make(chan *azservicebus.ReceivedMessage, 200)
		wg.Go(func() {
			defer close(msgs)
			for ctx.Err() == nil {
				got, err := r.ReceiveMessages(ctx, 100, nil)
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				for _, m := range got {
					msgs <- m
				}
			}
		})
		for range completers {
			wg.Go(func() {
				for m := range msgs {
					if err := r.CompleteMessage(context.Background(), m, nil); err != nil {
						b.Error(err)
					}
					if left.Add(-1) == 0 {
						cancel()
					}
				}
			})
		}
	}
	wg.Wait()
	// Without this a receiver that gave up early would look like a fast one.
	if st := srv.Stats("q"); st.Completed != n || st.Enqueued != n || st.LocksExpired != 0 {
		b.Errorf("stats = %+v, want %d completed", st, n)
	}
}

// BenchmarkSend is the SDK sending full batches of 100-byte messages.
func BenchmarkSend(b *testing.B) {
	srv := newServer(b, &sbtest.Server{}, "q")
	client := tcpClient(b, srv)
	defer closeAll(b, client, srv)
	ctx := context.Background()
	s := newSender(b, client, "q")
	body := make([]byte, 100)
	sent := 0
	for sent < b.N {
		batch, err := s.NewMessageBatch(ctx, nil)
		if err != nil {
			b.Fatal(err)
		}
		for sent < b.N {
			if err := batch.AddMessage(&azservicebus.Message{Body: body}, nil); err != nil {
				break
			}
			sent++
		}
		if err := s.SendMessageBatch(ctx, batch, nil); err != nil {
			b.Fatal(err)
		}
	}
}
