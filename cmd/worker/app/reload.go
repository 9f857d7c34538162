package app

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"millrace/internal/catalog"
	"millrace/worker/infer"
)

const (
	// A ConfigMap is replaced in several steps, and editors write twice.
	settleAfter = 500 * time.Millisecond
	// Folders below the catalog's are not watched; what changes there is seen by then.
	lookEvery = time.Minute
)

// watchFolder sends to changed whenever something happened in the catalog's folder, and every minute, until ctx ends.
// The folder is watched and not the file: Kubernetes replaces a ConfigMap by swapping a symbolic link beside it.
func watchFolder(ctx context.Context, path string, changed chan<- struct{}, log *slog.Logger) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		if err = watcher.Add(filepath.Dir(path)); err == nil {
			events, errs = watcher.Events, watcher.Errors
		}
	}
	if err != nil {
		log.Warn("catalog folder cannot be watched; it is looked at every minute", "err", err)
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	settled := time.After(settleAfter) // for what changed after the catalog was read and before its folder was watched
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			settled = time.After(settleAfter)
			continue
		case err := <-errs:
			log.Warn("watching the catalog folder", "err", err)
			continue
		case <-settled:
			settled = nil
		case <-look.C:
		}
		select {
		case changed <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// reloader puts a changed catalog in the place of the one in use.
type reloader struct {
	path    string
	hash    string // of the catalog in use
	failure string // of the last attempt, so that it is told once
	parts   *parts
	handler *infer.Handler
	log     *slog.Logger
}

// run looks at the catalog whenever changed says so, until ctx ends.
func (r *reloader) run(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			r.reload()
		}
	}
}

// reload keeps the catalog in use if the new one cannot be used: a mistake in it must not stop a fleet that works.
func (r *reloader) reload() {
	c, err := catalog.Load(r.path)
	if err == nil && c.Hash == r.hash {
		r.failure = ""
		return
	}
	if err == nil {
		var cfg infer.Config
		if cfg, err = r.parts.under(c); err == nil {
			err = r.handler.Use(cfg)
		}
	}
	if err != nil {
		if text := fmt.Sprint(err); text != r.failure {
			r.failure = text
			r.log.Error("catalog not reloaded; the one in use stays", "catalog", r.path, "err", err)
		}
		return
	}
	r.log.Info("catalog reloaded", "catalog", c.Hash[:12], "was", r.hash[:12], "aliases", len(c.Aliases), "tenants", len(c.Tenants))
	r.hash, r.failure = c.Hash, ""
}
