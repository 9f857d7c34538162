// Package app wires one worker process: settings and catalog in, a running fleet member out.
//
// It is importable so that tests and the development command run the whole process, with their own network, inside
// theirs.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/internal/catalog"
	"millrace/internal/redact"
	"millrace/internal/telemetry"
	"millrace/worker"
	"millrace/worker/infer"
)

// closeFor bounds the closing of connections after a drain.
const closeFor = 5 * time.Second

// configError is a mistake that no restart mends.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// IsConfiguration reports whether err is about the settings or the catalog and not about something that failed later.
func IsConfiguration(err error) bool { return errors.As(err, new(configError)) }

// Run works until ctx ends and the drain is over. A bad catalog or setting is a configuration error at once.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return configError{err}
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel}))
	}
	c, err := catalog.Load(cfg.Catalog)
	if err != nil {
		return configError{err}
	}
	if err := cfg.identify(); err != nil {
		return configError{err}
	}
	parts, err := newParts(cfg)
	if err != nil {
		return configError{err}
	}
	defer parts.close()
	under, err := parts.under(c)
	if err != nil {
		return configError{err}
	}
	measured, err := telemetry.Open(ctx, "millrace-worker", os.LookupEnv)
	if err != nil {
		return configError{redact.Error(err)}
	}
	defer closing(ctx, log, "telemetry", measured.Close)
	handler, err := infer.New(under, &infer.Options{Meter: measured.Meter, Tracer: measured.Tracer})
	if err != nil {
		return configError{err}
	}
	pool, err := worker.NewPool(cfg.Connections, func() (*azservicebus.Client, error) { return cfg.OpenBus(NoRetries) })
	if err != nil {
		return configError{redact.Error(err)}
	}
	defer closing(ctx, log, "connections", pool.Close)

	w := worker.New(pool, cfg.Queue, handler.Handle, &worker.Options{
		Slots: cfg.Slots, Receivers: cfg.Receivers, DrainFor: cfg.Drain, IdleExit: cfg.IdleExit,
		Meter: measured.Meter, Tracer: measured.Tracer, Logger: log,
	})
	beside, err := cfg.beside(ctx, w, measured, &reloader{
		path: cfg.Catalog, hash: c.Hash, parts: parts, handler: handler, log: log,
	}, log)
	if err != nil {
		return configError{err}
	}
	defer beside()
	log.Info("worker started", "queue", cfg.Queue, "slots", cfg.Slots, "receivers", cfg.Receivers, "connections", cfg.Connections,
		"aliases", len(c.Aliases), "tenants", len(c.Tenants), "catalog", c.Hash[:12], "share", fmt.Sprintf("1/%d", cfg.MaxReplicas))
	err = w.Run(ctx)
	counts := w.Counts()
	args := []any{"held", counts.Held.Load(), "drained", counts.Drained.Load(), "locks_lost", counts.LocksLost.Load(),
		"unsettled", counts.Unsettled.Load(), "links_rebuilt", counts.Rebuilds.Load()}
	for _, k := range worker.Kinds() {
		args = append(args, k.String(), counts.Verdicts[k].Load())
	}
	log.Info("worker stopped", args...)
	if errors.Is(err, worker.ErrSessionQueue) {
		return configError{err}
	}
	return err
}

// beside starts what runs beside the worker, the pages and the reloading of the catalog, and returns what ends and joins
// it.
func (c Config) beside(ctx context.Context, w *worker.Worker, measured *telemetry.Telemetry, r *reloader, log *slog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
	}
	if c.Listen != "off" {
		l, err := net.Listen("tcp", c.Listen)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("MILLRACE_LISTEN: %w; choose another address, or off", err)
		}
		log.Info("pages served", "address", l.Addr().String())
		running.Go(func() {
			if err := telemetry.Serve(ctx, l, measured.Pages(telemetry.Checks{"queue": w.Ready})); err != nil {
				log.Error("pages ended", "err", err)
			}
		})
	}
	changed := c.Changed
	if changed == nil {
		noticed := make(chan struct{})
		running.Go(func() { watchFolder(ctx, c.Catalog, noticed, log) })
		changed = noticed
	}
	running.Go(func() { r.run(ctx, changed) })
	return stop, nil
}

// closing closes a part after everything that used it, within a bound.
func closing(ctx context.Context, log *slog.Logger, what string, f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
	defer cancel()
	if err := f(ctx); err != nil {
		log.Debug(what+" closed with an error", "err", redact.Error(err))
	}
}
