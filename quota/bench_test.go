package quota_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"millrace/quota"
)

// BenchmarkReserve measures one uncontended request from Reserve to Settle. golang.org/x/time/rate, which keeps one number instead
// of a window and a line, is the baseline of the same run.
func BenchmarkReserve(b *testing.B) {
	b.Run("limiter=rate", func(b *testing.B) {
		l := rate.NewLimiter(1e12, 1<<40)
		b.ReportAllocs()
		for b.Loop() {
			if err := l.WaitN(b.Context(), 1000); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, rpm := range []float64{0, 1e12} {
		b.Run(fmt.Sprintf("limiter=millrace/rpm=%t", rpm > 0), func(b *testing.B) {
			l := quota.New(quota.Static(1<<40), &quota.Options{Window: time.Millisecond, RPM: rpm})
			b.ReportAllocs()
			for b.Loop() {
				r, err := l.Reserve(b.Context(), "acme", 1000)
				if err != nil {
					b.Fatal(err)
				}
				r.Sent()
				r.Settle()
			}
		})
	}
}

// BenchmarkWaiters measures one admission while many wait: a full window whose charge is handed from one waiter to the next.
func BenchmarkWaiters(b *testing.B) {
	for _, tenants := range []int{1, 100} {
		for _, waiters := range []int{10, 1000, 10_000} {
			b.Run(fmt.Sprintf("tenants=%d/waiters=%d", tenants, waiters), func(b *testing.B) {
				l := quota.New(quota.Static(1), nil)
				ctx, cancel := context.WithCancel(b.Context())
				served := make(chan *quota.Reservation)
				var wg sync.WaitGroup
				for i := range waiters {
					wg.Go(func() {
						for {
							r, err := l.Reserve(ctx, fmt.Sprint(i%tenants), 1)
							if err != nil {
								return
							}
							select {
							case served <- r:
							case <-ctx.Done():
								r.Cancel()
							}
						}
					})
				}
				b.ReportAllocs()
				for b.Loop() {
					(<-served).Cancel()
				}
				cancel()
				wg.Wait()
			})
		}
	}
}

// BenchmarkCancel measures a waiter that gives up among many others.
func BenchmarkCancel(b *testing.B) {
	for _, waiters := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			l := quota.New(quota.Static(1), nil)
			held, _ := l.TryReserve("acme", 1)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			for i := range waiters {
				wg.Go(func() { _, _ = l.Reserve(ctx, fmt.Sprint(i%10), 1) })
			}
			for l.Stats().Waiting < waiters {
			}
			gone, leave := context.WithCancel(ctx)
			b.ReportAllocs()
			for b.Loop() {
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = l.Reserve(gone, "acme", 1)
				}()
				leave()
				<-done
				gone, leave = context.WithCancel(ctx)
			}
			leave()
			cancel()
			wg.Wait()
			held.Cancel()
		})
	}
}
