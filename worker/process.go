package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

const (
	holdBase = 500 * time.Millisecond
	holdTop  = 30 * time.Second
)

// process is one message's stay in its slot: lock kept, handler run, message settled. life ends when the grace period
// is over, draining when a stop is asked for.
func (w *Worker) process(life context.Context, draining context.Context, l *link, d *delivery) {
	began := time.Now()
	life, span := l.meters.process(life, d)
	held, lose := context.WithCancelCause(context.WithoutCancel(life)) // as long as the lock
	defer lose(nil)
	work, cut := context.WithCancelCause(life) // as long as the lock and the grace period
	defer cut(nil)
	join := l.keep(held, d, func() {
		w.counts.LocksLost.Add(1)
		cut(ErrLockLost)
		lose(ErrLockLost)
	})

	v := w.work(work, draining, d)
	settling := l.meters.settle(life, v.settlement())
	err := l.settle(held, draining, d, v) // the lock is kept until this is done
	settling.End()
	lose(nil)
	join()
	took := time.Since(began)
	l.meters.finish(life, span, v, err, took)
	w.note(d, v, err, took)
}

// work runs the handler until its verdict is final, waiting in place while a dependency is named.
func (w *Worker) work(ctx context.Context, draining context.Context, d *delivery) Verdict {
	began := time.Now()
	for n := 0; ; n++ {
		if draining.Err() != nil {
			return Interrupted(ErrDraining)
		}
		v := w.attempt(ctx, draining, d)
		if v.Kind.Settlement() != Hold || v.Dependency == "" {
			return v
		}
		wait := max(backoff(n, holdBase, holdTop), v.RetryAfter+backoff(0, holdBase, holdTop))
		if v.Kind == Infrastructure {
			left := w.opts.Hold - time.Since(began)
			if left <= 0 {
				return v
			}
			wait = min(wait, left)
		}
		w.counts.Held.Add(1)
		w.log.Warn("message held", "message_id", d.ID, "verdict", v.Kind.String(), "dependency", v.Dependency,
			"attempt", n+1, "wait_ms", wait.Milliseconds(), "err", v.Err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-draining.Done():
		case <-ctx.Done():
			timer.Stop()
			return Interrupted(context.Cause(ctx))
		}
		timer.Stop()
	}
}

// attempt runs the handler once, contained: a panic or a context that ended under it becomes a verdict.
func (w *Worker) attempt(ctx context.Context, draining context.Context, d *delivery) (v Verdict) {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	m := *d.Message
	m.start = &starter{cut: cut}

	defer context.AfterFunc(draining, m.start.drain)()

	defer func() {
		if r := recover(); r != nil {
			w.log.Error("handler panicked", "message_id", d.ID, "panic", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
			v = Verdict{Err: errPanic}
		}
		if v.Kind < 0 || int(v.Kind) >= len(w.counts.Verdicts) {
			v = Verdict{Err: fmt.Errorf("handler returned a verdict of unknown kind %d", v.Kind)}
		}
		if ctx.Err() != nil && v.Kind.Settlement() == Hold {
			v = Interrupted(context.Cause(ctx))
		}
	}()
	return w.handler(ctx, &m)
}

// note counts and logs the end of a message.
func (w *Worker) note(d *delivery, v Verdict, settleErr error, took time.Duration) {
	w.counts.Verdicts[v.Kind].Add(1)
	if v.Kind == Cut && v.Reason == reasonDrain {
		w.counts.Drained.Add(1)
	}
	level := slog.LevelDebug
	switch {
	case settleErr != nil && !v.lockIsLost():
		w.counts.Unsettled.Add(1)
		level = slog.LevelWarn
	case v.settlement() == Abandon || v.settlement() == DeadLetter:
		level = slog.LevelInfo
	}
	args := []any{"message_id", d.ID, "verdict", v.Kind.String(), "settlement", string(v.settlement()),
		"delivery_count", d.Delivery, "duration_ms", took.Milliseconds()}
	for _, f := range []struct{ key, value string }{
		{"outcome", v.Outcome}, {"reason", v.Reason}, {"dependency", v.Dependency}, {"detail", v.Detail},
	} {
		if f.value != "" {
			args = append(args, f.key, f.value)
		}
	}
	if v.Err != nil {
		args = append(args, "err", v.Err)
	}
	if settleErr != nil {
		args = append(args, "settle_err", settleErr)
	}
	w.log.Log(context.Background(), level, "message settled", args...)
}
