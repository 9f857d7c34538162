package quota

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// DefaultWindow is the service's minute and a margin for requests that take longer to arrive than the ones after them.
	DefaultWindow = 60200 * time.Millisecond

	// rpmShare is the part of the requests-per-minute limit that is used.
	rpmShare = 0.95
	// minAsk is how soon a share is asked again on a timer when it names no later moment itself.
	minAsk = 100 * time.Millisecond
	// maxCap keeps sums of charges far from overflow. It is 10^15 tokens, so nobody meets it.
	maxCap = 1 << 50
)

// Options adjusts a Limiter. Nil stands for all defaults.
type Options struct {
	// Window is how long a sent request counts. Default: DefaultWindow, 60.2 s.
	Window time.Duration
	// RPM is the requests-per-minute limit of this replica. Requests are spaced at 95 % of it, with a burst small enough that the
	// service's one-second and ten-second checks hold too. Fractions are allowed: a part of a small limit may be below one.
	// Default: 0, unlimited.
	RPM float64
	// Weights gives tenants unequal shares while they compete: a tenant of weight 2 gets twice the tokens of one of weight 1. Values
	// are clamped to 0.001…1000. Default: 1 for every tenant that is not listed or whose value is not positive.
	Weights map[string]float64
}

// Limiter admits requests to one deployment. It is safe for concurrent use, starts no goroutine and needs no closing. Create it with
// New.
type Limiter struct {
	mu      sync.Mutex
	share   Share
	window  window
	line    line
	pace    *rate.Limiter // nil: unlimited
	weights map[string]float64

	last        time.Time // of the latest operation; the limiter's time never goes back
	limit       int       // the cap in force
	limitUntil  time.Time
	pausedUntil time.Time

	timer *time.Timer // runs wake; nil until somebody waits
	dueAt time.Time   // when timer fires; zero while it is stopped
}

// New returns a limiter over share.
func New(share Share, opts *Options) *Limiter {
	if opts == nil {
		opts = &Options{}
	}
	length := opts.Window
	if length <= 0 {
		length = DefaultWindow
	}
	t := time.Now()
	l := &Limiter{share: share, window: newWindow(length, t), line: newLine(), last: t}
	l.setRPM(t, opts.RPM)
	l.setWeights(opts.Weights)
	return l
}

// Reserve waits until tokens, the service's own estimate of the whole request, fit, and charges them. Order is fair between tenants
// and first come, first served inside one.
//
// A request larger than the cap is a *TooLargeError at once; so is one that no longer fits because the cap shrank while it waited.
// Otherwise Reserve returns an error only if tokens is not positive or when ctx ends, wrapping context.Cause(ctx); then nothing is
// charged and the next waiter is woken.
//
// The caller ends every reservation with Settle or Cancel. One that is forgotten occupies the window for ever.
func (l *Limiter) Reserve(ctx context.Context, tenant string, tokens int) (*Reservation, error) {
	if tokens < 1 {
		return nil, fmt.Errorf("reserve quota: %d tokens: must be at least 1", tokens)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("reserve quota: %w", context.Cause(ctx))
	}
	l.mu.Lock()
	t := l.now()
	l.dispatch(t)
	if l.tooLarge(tokens) {
		err := &TooLargeError{Tokens: tokens, Limit: l.limit}
		l.mu.Unlock()
		return nil, err
	}
	if r := l.tryGrant(t, tenant, tokens); r != nil {
		l.mu.Unlock()
		return r, nil
	}
	w := &waiter{tokens: tokens, ready: make(chan struct{})}
	l.line.push(tenant, w)
	l.dispatch(t)
	l.mu.Unlock()

	select {
	case <-w.ready:
		return w.reservation, w.err
	case <-ctx.Done():
	}
	l.leave(w)
	if w.err != nil {
		return nil, w.err
	}
	return nil, fmt.Errorf("reserve quota: %w", context.Cause(ctx))
}

// TryReserve is Reserve without waiting. It is false if the request does not fit now, is not positive, or if anybody waits: it never
// overtakes.
func (l *Limiter) TryReserve(tenant string, tokens int) (*Reservation, bool) {
	if tokens < 1 {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.now()
	l.dispatch(t)
	r := l.tryGrant(t, tenant, tokens)
	return r, r != nil
}

// Pause admits nothing for d, which is what a 429 with Retry-After asks for. The longest pause wins; a negative one does nothing.
func (l *Limiter) Pause(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.now()
	if until := t.Add(max(d, 0)); until.After(l.pausedUntil) {
		l.pausedUntil = until
	}
	l.dispatch(t)
}

// Refresh asks the share for its cap now, before the time it named has passed. A share whose cap grew early calls it, from outside
// Cap.
func (l *Limiter) Refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limitUntil = time.Time{}
	l.dispatch(l.now())
}

// SetRPM replaces Options.RPM. Those who wait are timed anew; what was sent before keeps its place in the pace.
func (l *Limiter) SetRPM(rpm float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.now()
	l.setRPM(t, rpm)
	l.dispatch(t)
}

// SetWeights replaces Options.Weights for everything admitted from now on.
func (l *Limiter) SetWeights(weights map[string]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setWeights(weights)
}

// now reads the clock under the lock, so times of operations are in their order; the monotonic reading makes a changed wall clock
// irrelevant.
func (l *Limiter) now() time.Time {
	if t := time.Now(); t.After(l.last) {
		l.last = t
	}
	return l.last
}

// dispatch brings the limiter to t and serves the line as far as it goes. Every change ends here, so nobody waits on a schedule made
// before it.
func (l *Limiter) dispatch(t time.Time) {
	l.window.expire(t)
	l.ask(t)
	for {
		w := l.line.head()
		if w == nil {
			l.disarm()
			return
		}
		blocked, until := l.blocked(t, w.tokens)
		if blocked != "" {
			l.arm(t, until)
			return
		}
		l.line.remove(w)
		w.reservation = l.grant(t, w.tenant.name, w.tokens)
		close(w.ready)
	}
}

// ask renews the cap if its time has passed, and tells those who no longer fit.
func (l *Limiter) ask(t time.Time) {
	if t.Before(l.limitUntil) {
		return
	}
	before := l.limit
	tokens, until := l.share.Cap(t)
	l.limit = min(max(tokens, 0), maxCap)
	l.limitUntil = until
	if l.limit == before || l.limit == 0 || l.line.waiting == 0 {
		return
	}
	l.line.each(func(w *waiter) {
		if l.tooLarge(w.tokens) {
			l.line.remove(w)
			w.err = &TooLargeError{Tokens: w.tokens, Limit: l.limit}
			close(w.ready)
		}
	})
}

// tooLarge is false while the cap is zero: a closed gate says nothing about sizes.
func (l *Limiter) tooLarge(tokens int) bool { return l.limit > 0 && tokens > l.limit }

// blocked says why a request of this size cannot be admitted at t, and when that may change by itself; a zero time is never.
func (l *Limiter) blocked(t time.Time, tokens int) (Blocked, time.Time) {
	switch {
	case l.limit == 0:
		return BlockedClosed, time.Time{}
	case t.Before(l.pausedUntil):
		return BlockedPaused, l.pausedUntil
	case tokens > l.limit-l.window.used():
		expiry, _ := l.window.next()
		return BlockedWindow, expiry
	}
	if l.pace == nil {
		return "", time.Time{}
	}
	if missing := 1 - l.pace.TokensAt(t); missing > 0 {
		wait := time.Duration(math.Ceil(missing / float64(l.pace.Limit()) * float64(time.Second)))
		return BlockedRate, t.Add(max(wait, 1))
	}
	return "", time.Time{}
}

func (l *Limiter) tryGrant(t time.Time, tenant string, tokens int) *Reservation {
	if l.line.waiting > 0 {
		return nil
	}
	if blocked, _ := l.blocked(t, tokens); blocked != "" {
		return nil
	}
	return l.grant(t, tenant, tokens)
}

func (l *Limiter) grant(t time.Time, tenant string, tokens int) *Reservation {
	l.window.reserve(tokens)
	l.line.serve(tenant, tokens, l.weight(tenant))
	r := &Reservation{limiter: l, tokens: tokens}
	if l.pace != nil {
		r.slot = l.pace.ReserveN(t, 1)
	}
	return r
}

// leave ends a wait from the waiter's side. If it was served in the same moment, what it got goes back.
func (l *Limiter) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.now()
	select {
	case <-w.ready:
		if w.reservation != nil {
			w.reservation.cancel(t)
		}
	default:
		l.line.remove(w)
	}
	l.dispatch(t)
}

// wake is what the timer runs.
func (l *Limiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dueAt = time.Time{}
	l.dispatch(l.now())
}

// arm sets the timer for until, or for the end of the cap's validity if that comes first.
func (l *Limiter) arm(t, until time.Time) {
	ask := l.limitUntil
	if soonest := t.Add(minAsk); ask.Before(soonest) {
		ask = soonest
	}
	if until.IsZero() || ask.Before(until) {
		until = ask
	}
	if until.Equal(l.dueAt) {
		return
	}
	l.dueAt = until
	if l.timer == nil {
		l.timer = time.AfterFunc(until.Sub(t), l.wake)
		return
	}
	l.timer.Reset(until.Sub(t))
}

func (l *Limiter) disarm() {
	if l.dueAt.IsZero() {
		return
	}
	l.timer.Stop()
	l.dueAt = time.Time{}
}

func (l *Limiter) setRPM(t time.Time, rpm float64) {
	if !(rpm > 0) || math.IsInf(rpm, 1) {
		l.pace = nil
		return
	}
	limit := rate.Limit(rpmShare * rpm / 60)
	// The 5 % that the pace leaves free of one second's share is the burst that a one-second check still lets through.
	burst := int(min(max(1, (1-rpmShare)*rpm/60), 1e6))
	if l.pace == nil {
		l.pace = rate.NewLimiter(limit, burst)
		return
	}
	l.pace.SetLimitAt(t, limit)
	l.pace.SetBurstAt(t, burst)
}

func (l *Limiter) setWeights(weights map[string]float64) {
	l.weights = make(map[string]float64, len(weights))
	for name, weight := range weights {
		if weight > 0 {
			l.weights[name] = min(max(weight, 0.001), 1000)
		}
	}
}

func (l *Limiter) weight(tenant string) float64 {
	if weight, ok := l.weights[tenant]; ok {
		return weight
	}
	return 1
}
