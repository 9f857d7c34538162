package sbtest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
)

// Twenty clients of sixteen slots hold 10,000 messages for two seconds each: at
// best 32 rounds of 320, which is 64 virtual seconds.
func TestServerServesFleetInBubble(t *testing.T) {
	const clients, slots, n = 20, 16, 10_000
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		srv := newServer(t, &sbtest.Server{}, "q")
		for i := range n {
			if err := srv.Send("q", sbtest.Message{ID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var all []*azservicebus.Client
		for range clients {
			client := dialClient(t, srv)
			all = append(all, client)
			r := newReceiver(t, client, "q", nil)
			free := make(chan struct{}, slots)
			for range slots {
				free <- struct{}{}
			}
			wg.Go(func() {
				for {
					select {
					case <-free:
					case <-ctx.Done():
						return
					}
					want := 1 + len(free)
					for range want - 1 {
						<-free
					}
					msgs, err := r.ReceiveMessages(ctx, want, nil)
					if err != nil {
						return
					}
					for range want - len(msgs) {
						free <- struct{}{}
					}
					for _, m := range msgs {
						wg.Go(func() {
							<-time.After(2 * time.Second) // the model call
							if err := r.CompleteMessage(context.Background(), m, nil); err != nil {
								t.Error(err)
							}
							free <- struct{}{}
						})
					}
				}
			})
		}
		if err := srv.AwaitEmpty(ctx, "q"); err != nil {
			t.Fatal(err)
		}
		cancel()
		wg.Wait()
		for _, c := range all {
			c.Close(context.Background())
		}
		if st := srv.Stats("q"); st.Completed != n {
			t.Errorf("completed = %d, want %d", st.Completed, n)
		}
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		took := time.Since(begun)
		if took < 64*time.Second || took > 70*time.Second {
			t.Errorf("took %v of virtual time, want 64s or little more", took)
		}
		t.Logf("%d messages in %v of virtual time", n, took)
	})
}
