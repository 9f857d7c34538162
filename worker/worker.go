package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
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
}

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

// Run works until ctx ends, then drains. It returns nil after a clean drain, and an error naming how many messages are
// still in hand because a handler ignores the end of its context or the broker does not answer; those are left behind
// with their locks.
func (w *Worker) Run(ctx context.Context) error {
	links := make([]*link, w.opts.Receivers)
	for i := range links {
		slots := w.opts.Slots / len(links)
		if i < w.opts.Slots%len(links) {
			slots++
		}
		links[i] = newLink(w.pool, i, w.queue, slots, w.log, &w.counts)
	}

	// Messages outlive ctx by the grace period; end cuts them when it is over.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var busy atomic.Int64
	var running sync.WaitGroup
	for _, l := range links {
		running.Go(func() {
			l.run(ctx, func(d *delivery) {
				busy.Add(1)
				defer busy.Add(-1)
				w.process(life, ctx.Done(), l, d)
			})
		})
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()

	<-ctx.Done()
	w.log.Info("draining", "in_hand", busy.Load(), "grace", w.opts.DrainFor)
	grace := time.AfterFunc(w.opts.DrainFor, func() { end(ErrDraining) })
	defer grace.Stop()
	hung := time.NewTimer(w.opts.DrainFor + settleFor + closeFor)
	defer hung.Stop()
	select {
	case <-done:
		return nil
	case <-hung.C:
		return fmt.Errorf("stop worker: %d messages still in hand %v after the grace period", busy.Load(), settleFor+closeFor)
	}
}

var errPanic = errors.New("handler panicked")
