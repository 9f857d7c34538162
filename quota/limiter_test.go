package quota_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/quota"
)

// meter is the service's side: what arrived when.
type meter struct {
	mu     sync.Mutex
	at     []time.Time
	tokens []int
}

func (m *meter) arrive(tokens int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = append(m.at, time.Now())
	m.tokens = append(m.tokens, tokens)
}

// peak returns the most tokens, and the most requests, inside any sliding window of d.
func (m *meter) peak(d time.Duration) (tokens, requests int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, sum := 0, 0
	for i := range m.at {
		sum += m.tokens[i]
		for m.at[i].Sub(m.at[first]) >= d {
			sum -= m.tokens[first]
			first++
		}
		tokens, requests = max(tokens, sum), max(requests, i-first+1)
	}
	return tokens, requests
}

// pass lets d of the bubble's time go by and everything due in it happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// spend reserves, sends and settles.
func spend(t *testing.T, l *quota.Limiter, m *meter, tenant string, tokens int) {
	r, err := l.Reserve(t.Context(), tenant, tokens)
	if err != nil {
		t.Errorf("Reserve(%s, %d) = %v, want nil", tenant, tokens, err)
		return
	}
	m.arrive(tokens)
	r.Sent()
	r.Settle()
}

func TestLimiterTable(t *testing.T) {
	type action struct {
		at time.Duration
		// "try 30 x" reserves as x, "sent x", "settle x", "cancel x", "pause 5s".
		do   string
		ok   bool // of a try
		used int
	}
	const s = time.Second
	for _, tc := range []struct {
		name    string
		actions []action
	}{
		{"a sent charge counts for one window", []action{
			{0, "try 60 a", true, 60},
			{0, "sent a", false, 60},
			{0, "try 41 b", false, 60},
			{0, "try 40 b", true, 100},
			{0, "sent b", false, 100},
			{60*s + 199*time.Millisecond, "try 1 c", false, 100},
			{60*s + 200*time.Millisecond, "try 100 c", true, 100},
		}},
		{"the window runs from Sent, not from Reserve", []action{
			{0, "try 100 a", true, 100},
			{300 * s, "try 1 b", false, 100},
			{300 * s, "sent a", false, 100},
			{360 * s, "try 1 b", false, 100},
			{360*s + 200*time.Millisecond, "try 1 b", true, 1},
		}},
		{"only the first Sent counts", []action{
			{0, "try 100 a", true, 100},
			{0, "sent a", false, 100},
			{30 * s, "sent a", false, 100},
			{61 * s, "try 100 b", true, 100},
		}},
		{"Settle keeps the charge", []action{
			{0, "try 100 a", true, 100},
			{0, "sent a", false, 100},
			{30 * s, "settle a", false, 100},
			{60 * s, "try 1 b", false, 100},
			{61 * s, "try 1 b", true, 1},
		}},
		{"Settle implies Sent", []action{
			{0, "try 100 a", true, 100},
			{30 * s, "settle a", false, 100},
			{61 * s, "try 1 b", false, 100},
			{91 * s, "try 1 b", true, 1},
		}},
		{"Cancel before Sent gives back", []action{
			{0, "try 100 a", true, 100},
			{1 * s, "cancel a", false, 0},
			{1 * s, "cancel a", false, 0},
			{1 * s, "settle a", false, 0},
			{1 * s, "try 100 b", true, 100},
		}},
		{"Cancel after Sent gives back", []action{
			{0, "try 100 a", true, 100},
			{0, "sent a", false, 100},
			{1 * s, "cancel a", false, 0},
			{1 * s, "sent a", false, 0},
			{1 * s, "try 100 b", true, 100},
			{1 * s, "cancel a", false, 100},
		}},
		{"Cancel after Settle does nothing", []action{
			{0, "try 100 a", true, 100},
			{0, "settle a", false, 100},
			{0, "cancel a", false, 100},
		}},
		{"Cancel after the window does nothing", []action{
			{0, "try 100 a", true, 100},
			{0, "sent a", false, 100},
			{61 * s, "try 50 b", true, 50},
			{61 * s, "cancel a", false, 50},
		}},
		{"Sent after Cancel brings the charge back", []action{
			{0, "try 100 a", true, 100},
			{0, "cancel a", false, 0},
			{0, "try 100 b", true, 100},
			{1 * s, "sent a", false, 200},
			{1 * s, "sent a", false, 200},
			{1 * s, "cancel b", false, 100},
			{61 * s, "try 1 c", false, 100},
			{62 * s, "try 100 c", true, 100},
		}},
		{"the longest pause wins", []action{
			{0, "pause 10s", false, 0},
			{0, "pause 5s", false, 0},
			{0, "pause -1h", false, 0},
			{9 * s, "try 1 a", false, 0},
			{10 * s, "try 1 a", true, 1},
		}},
		{"sizes that are no sizes", []action{
			{0, "try 0 a", false, 0},
			{0, "try -5 a", false, 0},
			{0, "try 101 a", false, 0},
			{0, fmt.Sprintf("try %d a", math.MaxInt), false, 0},
			{0, "try 100 a", true, 100},
			{0, fmt.Sprintf("try %d a", math.MaxInt), false, 100},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := quota.New(quota.Static(100), nil)
				held := map[string]*quota.Reservation{}
				start := time.Now()
				for i, a := range tc.actions {
					pass(a.at - time.Since(start))
					f := strings.Fields(a.do)
					switch f[0] {
					case "try":
						var tokens int
						fmt.Sscan(f[1], &tokens)
						r, ok := l.TryReserve("acme", tokens)
						if ok != a.ok {
							t.Errorf("action %d at %v: TryReserve(%d) = %v, want %v", i, a.at, tokens, ok, a.ok)
						}
						if ok {
							held[f[2]] = r
						}
					case "pause":
						d, _ := time.ParseDuration(f[1])
						l.Pause(d)
					case "sent":
						held[f[1]].Sent()
					case "settle":
						held[f[1]].Settle()
					case "cancel":
						held[f[1]].Cancel()
					}
					if got := l.Stats().Used; got != a.used {
						t.Errorf("action %d at %v (%s): Used = %d, want %d", i, a.at, a.do, got, a.used)
					}
				}
			})
		})
	}
}

func TestLimiterFloodAfterIdleStaysUnderTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, size, n = 100_000, 3_000, 500
		l := quota.New(quota.Static(limit), nil)
		pass(2 * time.Minute)
		var m meter
		start := time.Now()
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { spend(t, l, &m, "acme", size) })
		}
		wg.Wait()
		if got, _ := m.peak(time.Minute); got > limit {
			t.Errorf("peak of any minute = %d, want at most %d", got, limit)
		}
		// 33 fit in a window of 60.2 s, so 500 need 15 more windows.
		if got, want := time.Since(start), 15*quota.DefaultWindow; got != want {
			t.Errorf("time for %d requests = %v, want %v", n, got, want)
		}
	})
}

func TestLimiterSlowConnectionsStretchNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10_000
		l := quota.New(quota.Static(limit), nil)
		var m meter
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				r, err := l.Reserve(t.Context(), "acme", 1000)
				if err != nil {
					t.Errorf("Reserve = %v, want nil", err)
					return
				}
				// Up to 50 s between the permission and the wire.
				<-time.After(time.Duration(i*17%51) * time.Second)
				m.arrive(1000)
				r.Sent()
				<-time.After(time.Duration(i*7%30) * time.Second)
				r.Settle()
			})
		}
		wg.Wait()
		if got, _ := m.peak(time.Minute); got > limit {
			t.Errorf("peak of any minute = %d, want at most %d", got, limit)
		}
	})
}

func TestLimiterRequestAsLargeAsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(1000), nil)
		var m meter
		start := time.Now()
		for range 3 {
			spend(t, l, &m, "acme", 1000)
		}
		if got, want := time.Since(start), 2*quota.DefaultWindow; got != want {
			t.Errorf("time for three = %v, want %v", got, want)
		}
	})
}

func TestLimiterRefusesWhatCanNeverFit(t *testing.T) {
	l := quota.New(quota.Static(1000), nil)
	for _, tokens := range []int{1001, math.MaxInt} {
		_, err := l.Reserve(t.Context(), "acme", tokens)
		var tooLarge *quota.TooLargeError
		if !errors.As(err, &tooLarge) {
			t.Fatalf("Reserve(%d) = %v, want *TooLargeError", tokens, err)
		}
		if diff := cmp.Diff(&quota.TooLargeError{Tokens: tokens, Limit: 1000}, tooLarge); diff != "" {
			t.Errorf("Reserve(%d) (-want +got):\n%s", tokens, diff)
		}
	}
	for _, tokens := range []int{0, -1, math.MinInt} {
		if _, err := l.Reserve(t.Context(), "acme", tokens); err == nil {
			t.Errorf("Reserve(%d) = nil, want an error", tokens)
		}
	}
	if got := l.Stats().Used; got != 0 {
		t.Errorf("Used = %d, want 0", got)
	}
}

func TestLimiterHugeCapDoesNotOverflow(t *testing.T) {
	l := quota.New(quota.Static(math.MaxInt), nil)
	for range 5 {
		r, ok := l.TryReserve("acme", 1<<47)
		if !ok {
			t.Fatal("TryReserve(1<<47) = false, want true")
		}
		r.Settle()
	}
	if got, want := l.Stats().Used, 5<<47; got != want {
		t.Errorf("Used = %d, want %d", got, want)
	}
}

func TestLimiterPauseHoldsWaitersAndReleasesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(1000), nil)
		l.Pause(7 * time.Second)
		start := time.Now()
		var m meter
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { spend(t, l, &m, "acme", 10) })
		}
		pass(3 * time.Second)
		if got := l.Stats(); got.Blocked != quota.BlockedPaused || got.Waiting != 5 || !got.NextAt.Equal(start.Add(7*time.Second)) {
			t.Errorf("Stats = %+v, want 5 waiting, paused until second 7", got)
		}
		l.Pause(10 * time.Second) // until 13, while they wait for 7
		wg.Wait()
		if got, want := time.Since(start), 13*time.Second; got != want {
			t.Errorf("released after %v, want %v", got, want)
		}
	})
}

func TestLimiterCancelWakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(100), nil)
		start := time.Now()
		first, _ := l.TryReserve("acme", 100)
		second, _ := l.TryReserve("acme", 1)
		if second != nil {
			t.Fatal("TryReserve beside a full window = true, want false")
		}
		var m meter
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { spend(t, l, &m, "acme", 25) })
		}
		synctest.Wait()
		if got := l.Stats(); got.Blocked != quota.BlockedWindow || got.InFlight != 100 {
			t.Errorf("Stats = %+v, want blocked by the window with 100 in flight", got)
		}
		pass(3 * time.Second)
		first.Cancel()
		wg.Wait()
		if got, want := time.Since(start), 3*time.Second; got != want {
			t.Errorf("released after %v, want %v", got, want)
		}
	})
}

func TestLimiterWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(100), nil)
		held, _ := l.TryReserve("acme", 50)
		cause := errors.New("drain")
		ctx, cancel := context.WithCancelCause(t.Context())
		var m meter
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.Reserve(ctx, "acme", 80); !errors.Is(err, cause) {
				t.Errorf("Reserve under a cancelled context = %v, want %v", err, cause)
			}
		})
		synctest.Wait()
		start := time.Now()
		wg.Go(func() { spend(t, l, &m, "acme", 50) }) // fits, but stands behind
		pass(2 * time.Second)
		if got := l.Stats().Waiting; got != 2 {
			t.Errorf("Waiting = %d, want 2", got)
		}
		cancel(cause)
		wg.Wait()
		if got, want := time.Since(start), 2*time.Second; got != want {
			t.Errorf("the next was released after %v, want %v", got, want)
		}
		held.Cancel()
		if got := l.Stats(); got.Used != 50 || got.Waiting != 0 {
			t.Errorf("Stats = %+v, want 50 used and nobody waiting", got)
		}
		if _, err := l.Reserve(ctx, "acme", 1); !errors.Is(err, cause) {
			t.Errorf("Reserve with a context that has ended = %v, want %v", err, cause)
		}
	})
}

func TestLimiterTryReserveNeverOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(100), nil)
		held, _ := l.TryReserve("acme", 50)
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := l.Reserve(t.Context(), "acme", 80)
			if err != nil {
				t.Errorf("Reserve = %v, want nil", err)
				return
			}
			r.Cancel()
		})
		synctest.Wait()
		if _, ok := l.TryReserve("other", 1); ok {
			t.Error("TryReserve while another tenant waits = true, want false")
		}
		held.Cancel()
		wg.Wait()
		if _, ok := l.TryReserve("other", 1); !ok {
			t.Error("TryReserve with nobody waiting = false, want true")
		}
	})
}

func TestLimiterSharesByWeightInTokens(t *testing.T) {
	for _, tc := range []struct {
		name   string
		weight float64 // of b; a has 1
		a, b   int     // sizes
	}{
		{"equal weights, equal sizes", 1, 1000, 1000},
		{"equal weights, unequal sizes", 1, 700, 2600},
		{"weight three", 3, 1000, 1000},
		{"weight three for the larger", 3, 500, 2300},
		{"weight a half", 0.5, 1000, 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, minutes = 100_000, 20
				l := quota.New(quota.Static(limit), &quota.Options{Weights: map[string]float64{"b": tc.weight}})
				ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute)
				defer cancel()
				var mu sync.Mutex
				got := map[string]int{}
				start := time.Now()
				var wg sync.WaitGroup
				flood := func(tenant string, size, callers int) {
					for range callers {
						wg.Go(func() {
							for {
								r, err := l.Reserve(ctx, tenant, size)
								if err != nil {
									return
								}
								r.Settle()
								mu.Lock()
								if time.Since(start) > 0 { // the first window went to who came first
									got[tenant] += size
								}
								mu.Unlock()
							}
						})
					}
				}
				// What was sent together leaves together, so to compete for all of it a tenant needs a whole window's worth waiting.
				flood("a", tc.a, 2000) // more callers buy nothing
				flood("b", tc.b, 300)
				wg.Wait()
				ratio := float64(got["b"]) / float64(got["a"])
				if math.Abs(ratio/tc.weight-1) > 0.03 {
					t.Errorf("b/a = %.3f, want %.3f within 3 %%", ratio, tc.weight)
				}
				total := got["a"] + got["b"]
				if want := limit * (minutes - 2) * 60 / 60.2; float64(total) < 0.95*want {
					t.Errorf("total = %d tokens, want nearly %.0f", total, want)
				}
			})
		})
	}
}

func TestLimiterUnusedSharesGoToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(1000), &quota.Options{Weights: map[string]float64{"idle": 1000}})
		var m meter
		for range 10 {
			spend(t, l, &m, "busy", 100)
		}
		if got := l.Stats().Used; got != 1000 {
			t.Errorf("Used by the only tenant = %d, want 1000", got)
		}
	})
}

func TestLimiterLargeRequestIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(1000), nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for {
					r, err := l.Reserve(ctx, fmt.Sprint("small-", i%5), 10)
					if err != nil {
						return
					}
					r.Settle()
				}
			})
		}
		pass(time.Minute)
		start := time.Now()
		r, err := l.Reserve(t.Context(), "large", 1000)
		if err != nil {
			t.Fatal(err)
		}
		// Six tenants share: it waits until the others had 1000 each, five windows, at most, and one for the window to drain.
		if got, limit := time.Since(start), 7*quota.DefaultWindow; got > limit {
			t.Errorf("the request as large as the limit waited %v, want at most %v", got, limit)
		}
		r.Cancel()
		cancel()
		wg.Wait()
	})
}

func TestLimiterPacesRequests(t *testing.T) {
	for _, rpm := range []float64{0.5, 6, 60, 90, 600, 1000, 10_000} {
		t.Run(fmt.Sprint("rpm=", rpm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := quota.New(quota.Static(1<<40), &quota.Options{RPM: rpm})
				pass(10 * time.Minute)
				n := int(max(4, min(rpm*2, 5000)))
				var m meter
				start := time.Now()
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() { spend(t, l, &m, "acme", 1) })
				}
				wg.Wait()
				elapsed := time.Since(start)
				for _, d := range []time.Duration{10 * time.Second, time.Minute} {
					_, got := m.peak(d)
					if allowed := rpm * d.Minutes(); float64(got) > max(1, allowed) {
						t.Errorf("requests in %v = %d, want at most %.1f", d, got, allowed)
					}
				}
				if _, got := m.peak(time.Second); rpm >= 60 && float64(got) > math.Ceil(rpm/60) {
					t.Errorf("requests in 1s = %d, want at most %.0f", got, math.Ceil(rpm/60))
				}
				ideal := time.Duration(float64(n-1) / (0.95 * rpm) * float64(time.Minute))
				if elapsed > ideal+time.Millisecond {
					t.Errorf("%d requests took %v, want at most %v", n, elapsed, ideal)
				}
			})
		})
	}
}

func TestLimiterPaceIsGivenBackWhileItCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(1000), &quota.Options{RPM: 6})
		r, _ := l.TryReserve("acme", 1)
		r.Cancel()
		if r, _ = l.TryReserve("acme", 1); r == nil {
			t.Fatal("TryReserve after Cancel in the same moment = false, want true")
		}
		r.Sent()
		r.Cancel() // refused with 429: the service counted the request
		if _, ok := l.TryReserve("acme", 1); ok {
			t.Error("TryReserve after a sent request was cancelled = true, want false")
		}
	})
}

func TestLimiterRetimesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(1000), &quota.Options{RPM: 1})
		var m meter
		spend(t, l, &m, "acme", 1)
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { spend(t, l, &m, "acme", 1) })
		}
		pass(time.Second)
		if got := l.Stats().Blocked; got != quota.BlockedRate {
			t.Errorf("Blocked = %q, want %q", got, quota.BlockedRate)
		}
		l.SetRPM(6000)
		wg.Wait()
		if got, limit := time.Since(start), 2*time.Second; got > limit {
			t.Errorf("waiters of the old rate took %v, want at most %v", got, limit)
		}
		l.SetRPM(0)
		for range 100 {
			if _, ok := l.TryReserve("acme", 1); !ok {
				t.Fatal("TryReserve without a rate limit = false, want true")
			}
		}
	})
}

func TestLimiterSentStartsTheClockOfThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(100), nil)
		held, _ := l.TryReserve("acme", 100)
		start := time.Now()
		var m meter
		var wg sync.WaitGroup
		wg.Go(func() { spend(t, l, &m, "acme", 100) })
		pass(5 * time.Second)
		held.Sent()
		wg.Wait()
		if got, want := time.Since(start), 5*time.Second+quota.DefaultWindow; got != want {
			t.Errorf("the next was released after %v, want %v", got, want)
		}
	})
}

func TestLimiterServedAndCancelledAtOnceLosesNothing(t *testing.T) {
	for i := range 200 {
		synctest.Test(t, func(t *testing.T) {
			l := quota.New(quota.Static(100), nil)
			held, _ := l.TryReserve("acme", 100)
			ctx, cancel := context.WithCancel(t.Context())
			var r *quota.Reservation
			var err error
			var wg sync.WaitGroup
			wg.Go(func() { r, err = l.Reserve(ctx, "acme", 100) })
			synctest.Wait()
			if i%2 == 0 {
				held.Cancel()
				cancel()
			} else {
				cancel()
				held.Cancel()
			}
			wg.Wait()
			if (r == nil) != (err != nil) {
				t.Fatalf("Reserve = %v, %v, want either", r, err)
			}
			if got, want := l.Stats().Used, map[bool]int{true: 100, false: 0}[err == nil]; got != want {
				t.Errorf("Used after Reserve = %v: %d, want %d", err, got, want)
			}
		})
	}
}
