package quota_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/quota"
)

// schedule plays what data says against a limiter in a bubble: a share that changes, and one request for every five bytes, each with
// an arrival, a tenant, a size, a time to connect and a fate. A waiter that nobody wakes is a deadlock of the bubble, which fails.
func schedule(t *testing.T, data []byte) {
	if len(data) < 8 {
		return
	}
	head, data := data[:8], data[8:]
	caps := make([]int, 4)
	peak, floor := 0, 1<<40
	for i := range caps {
		caps[i] = int(head[i]) * 10
		if i == len(caps)-1 {
			caps[i] += 10 // the last one holds for ever, so it must not be a closed gate
		}
		peak = max(peak, caps[i])
		if caps[i] > 0 {
			floor = min(floor, caps[i])
		}
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := quota.New(&ramp{start: start, caps: caps, every: time.Duration(1+int(head[4])) * time.Second}, &quota.Options{
			RPM:     float64(head[5]) * 20,
			Weights: map[string]float64{"b": float64(head[6]) / 16, "c": float64(head[7]) * 16},
		})
		var m meter
		var wg sync.WaitGroup
		for ; len(data) >= 5; data = data[5:] {
			request := data[:5]
			<-time.After(time.Duration(request[0]/8) * 500 * time.Millisecond)
			wg.Go(func() { play(t, l, &m, request, floor) })
		}
		wg.Wait()

		if got, _ := m.peak(quota.DefaultWindow); got > peak {
			t.Errorf("peak of any window = %d, want at most %d", got, peak)
		}
		if got := l.Stats(); got.Waiting != 0 || got.InFlight != 0 || got.Used > peak {
			t.Errorf("Stats at the end = %+v, want nobody waiting, nothing in flight", got)
		}
		pass(quota.DefaultWindow)
		if got := l.Stats().Used; got != 0 {
			t.Errorf("Used a window later = %d, want 0", got)
		}
	})
}

func play(t *testing.T, l *quota.Limiter, m *meter, request []byte, floor int) {
	tenant := string('a' + rune(request[1]%4))
	tokens := 1 + int(request[2])*8
	connect := time.Duration(request[3]) * 100 * time.Millisecond
	fate := request[4] % 8

	ctx := t.Context()
	if fate == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, connect)
		defer cancel()
	}
	var r *quota.Reservation
	var err error
	if fate == 1 {
		if r, _ = l.TryReserve(tenant, tokens); r == nil {
			return
		}
	} else {
		r, err = l.Reserve(ctx, tenant, tokens)
	}
	switch {
	case err == nil:
	case errors.As(err, new(*quota.TooLargeError)) && tokens > floor:
		return
	case errors.Is(err, context.DeadlineExceeded) && fate == 0:
		return
	default:
		t.Errorf("Reserve(%s, %d) = %v, want nil", tenant, tokens, err)
		return
	}
	if fate == 2 { // never sent
		r.Cancel()
		return
	}
	<-time.After(connect)
	if fate == 3 { // refused with 429: the service does not count it
		r.Sent()
		<-time.After(time.Second)
		r.Cancel()
		l.Pause(time.Duration(request[1]) * 50 * time.Millisecond)
		return
	}
	m.arrive(tokens)
	if fate != 4 { // forgotten; Settle has to make up for it
		r.Sent()
	}
	r.Settle()
	r.Cancel()
}

func FuzzLimiter(f *testing.F) {
	f.Add([]byte{10, 10, 10, 10, 30, 0, 16, 1, 0, 0, 12, 0, 7, 0, 1, 12, 0, 7})
	f.Add([]byte{0, 100, 5, 0, 10, 3, 0, 0, 0, 0, 100, 0, 7, 0, 1, 1, 40, 0, 9, 2, 50, 3, 3, 0, 0, 1, 255, 2})
	rnd := rand.New(rand.NewPCG(7, 11))
	for range 60 {
		data := make([]byte, 8+5*(1+rnd.IntN(60)))
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1000 {
			return
		}
		schedule(t, data)
	})
}

// TestLimiterStress is for the race detector: real time, a tiny window, every method at once.
func TestLimiterStress(t *testing.T) {
	l := quota.New(quota.Static(100), &quota.Options{Window: time.Millisecond, Weights: map[string]float64{"b": 2}})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(3000))*time.Microsecond)
				r, err := l.Reserve(ctx, string('a'+rune(rnd.IntN(4))), 1+rnd.IntN(100))
				if err == nil {
					wg.Go(r.Sent)
					if rnd.IntN(2) == 0 {
						r.Settle()
					} else {
						r.Cancel()
					}
				}
				if rnd.IntN(100) == 0 {
					l.Pause(time.Duration(rnd.IntN(100)) * time.Microsecond)
					l.Refresh()
				}
				cancel()
				_ = l.Stats()
			}
		})
	}
	wg.Wait()
	if got := l.Stats(); got.Waiting != 0 || got.InFlight != 0 {
		t.Errorf("Stats at the end = %+v, want nobody waiting, nothing in flight", got)
	}
}
