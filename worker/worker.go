package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options tune a [Worker]. Nil means all defaults.
type Options struct {
	// Slots is how many messages are in hand at once. Default: 32.
	Slots int

	// Receivers is how many links the slots are divided among, at most one per slot. A queue takes 5,000 concurrent
	// receives from a whole fleet; beyond four links throughput no longer grows. Default: 2.
	Receivers int

	// DrainFor is how long messages that have started may take after a stop. Keep it some seconds below the pod's
	// termination grace period. Default: 25s.
	DrainFor time.Duration

	// Hold is how long a message may be kept in its slot, under its renewed lock, while a dependency is out of order;
	// then it is abandoned. Throttling and misconfiguration are not limited by it. Default: 1h.
	Hold time.Duration

	// IdleExit ends Run, with nil, after so long without a message in hand or received. Default: 0, never.
	IdleExit time.Duration

	// Meter makes the metrics, and Tracer the spans. Default: none are made.
	Meter  metric.Meter
	Tracer trace.Tracer

	// Logger gets one line per settled message at debug level and what an operator must know above that.
	// Default: discards.
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Slots <= 0 {
		d.Slots = 32
	}
	if d.Receivers <= 0 {
		d.Receivers = 2
	}
	d.Receivers = min(d.Receivers, d.Slots)
	if d.DrainFor <= 0 {
		d.DrainFor = 25 * time.Second
	}
	if d.Hold <= 0 {
		d.Hold = time.Hour
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

// Worker runs a [Handler] over the messages of one queue.
type Worker struct {
	pool    *Pool
	queue   string
	handler Handler
	opts    Options
	log     *slog.Logger
	counts  Counts

	mu       sync.Mutex
	links    []*link
	draining bool
}

// ErrSessionQueue is why [Worker.Run] ends at once on a queue that requires sessions: its messages can only be received
// session by session, which a worker does not do.
var ErrSessionQueue = errors.New("the queue requires sessions, or forbids to receive from it: use a queue without sessions")

// New makes a worker for queue over pool, which stays the caller's to close.
func New(pool *Pool, queue string, handler Handler, opts *Options) *Worker {
	o := opts.withDefaults()
	return &Worker{pool: pool, queue: queue, handler: handler, opts: o, log: o.Logger}
}

// Counts are totals since the worker was made.
type Counts struct {
	Verdicts  [Cut + 1]atomic.Int64 // final verdicts, by [Kind]
	Held      atomic.Int64          // pauses in a slot, waiting for a dependency
	Drained   atomic.Int64          // abandoned because of a drain; each costs one delivery
	Unsettled atomic.Int64          // settlements that failed, or whose answer was lost; the broker may deliver those again
	LocksLost atomic.Int64          // handlers cut short by a lost lock
	Renewals  atomic.Int64          // lock renewals
	Rebuilds  atomic.Int64          // receivers closed because their link was dead
}

// Counts gives the live totals; read them with Load.
func (w *Worker) Counts() *Counts { return &w.counts }

// Ready says why this worker does not receive, or "".
func (w *Worker) Ready() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return "draining"
	}
	for _, l := range w.links {
		if l.current() != nil {
			return ""
		}
	}
	return "no receiver link is open"
}

// Run works until ctx ends, then drains. It returns nil after a clean drain, and an error naming how many messages are
// still in hand because a handler ignores the end of its context or the broker does not answer; those are left behind
// with their locks. [ErrSessionQueue] ends it at once.
func (w *Worker) Run(ctx context.Context) error {
	var busy atomic.Int64
	m, err := newMeters(w, &busy)
	if err != nil {
		return err
	}
	defer m.stop()
	ctx, stop := context.WithCancelCause(ctx) // ends with ctx, on a refusal, or when idle
	defer stop(nil)
	links := make([]*link, w.opts.Receivers)
	retired := newCountdown(len(links))
	for i := range links {
		slots := w.opts.Slots / len(links)
		if i < w.opts.Slots%len(links) {
			slots++
		}
		links[i] = newLink(w.pool, i, w.queue, slots, w.log, &w.counts)
		links[i].meters, links[i].refuse, links[i].retired = m, stop, retired
	}
	w.mu.Lock()
	w.links = links
	w.mu.Unlock()

	// Messages outlive ctx by the grace period; end cuts them when it is over.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	quiet := newQuiet(w.opts.IdleExit, func() bool {
		if w.Ready() != "" {
			return false // who cannot receive does not know that the queue is empty
		}
		stop(errIdle)
		return true
	})
	defer quiet.stop()
	var running sync.WaitGroup
	for _, l := range links {
		running.Go(func() {
			l.run(ctx, func(d *delivery) {
				quiet.begin()
				busy.Add(1)
				defer quiet.end()
				defer busy.Add(-1)
				w.process(life, ctx, l, d)
			})
		})
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()

	<-ctx.Done()
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.log.Info("draining", "in_hand", busy.Load(), "grace_ms", w.opts.DrainFor.Milliseconds(), "idle", errors.Is(context.Cause(ctx), errIdle))
	grace := time.AfterFunc(w.opts.DrainFor, func() { end(ErrDraining) })
	defer grace.Stop()
	hung := time.NewTimer(w.opts.DrainFor + settleFor + closeFor)
	defer hung.Stop()
	select {
	case <-done:
		if cause := context.Cause(ctx); errors.Is(cause, ErrSessionQueue) {
			return fmt.Errorf("queue %q: %w", w.queue, cause)
		}
		return nil
	case <-hung.C:
		return fmt.Errorf("stop worker: %d messages still in hand %v after the grace period", busy.Load(), settleFor+closeFor)
	}
}

var errIdle = errors.New("no message for as long as an idle worker waits")

var errPanic = errors.New("handler panicked")
