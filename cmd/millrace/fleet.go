package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"millrace/cmd/worker/app"
	"millrace/test/blobtest"
)

// fleet is the workers of a lab. Unless the lab is kept, one of them is cut off from its network right after it has
// written a result and before it can complete the message, and replaced, as Kubernetes replaces a pod whose node is gone.
type fleet struct {
	lab  *lab
	done sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	stopAll []context.CancelFunc
	errs    []error
	started int
	cutOff  int
	cutAt   time.Time

	ended chan struct{} // told when a worker has ended with an error
}

// start runs n workers until stop.
func (f *fleet) start(n int) error {
	for range n {
		if err := f.add(); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) add() error {
	cfg, err := app.FromEnv(func(key string) (string, bool) { v, ok := f.lab.settings[key]; return v, ok })
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return nil
	}
	f.started++
	ctx, cancel := context.WithCancel(context.Background())
	f.stopAll = append(f.stopAll, cancel)
	network := newCable("/"+blobtest.DevAccount+"/"+resultContainer+"/", func() bool { return f.written(cancel) })
	cfg.Dial, cfg.Transport = network.dial, network
	cfg.Logger = f.lab.log.With("worker", f.started)
	f.done.Go(func() {
		err := app.Run(ctx, cfg)
		network.close()
		f.mu.Lock()
		defer f.mu.Unlock()
		if err != nil {
			f.errs = append(f.errs, err)
			select {
			case f.ended <- struct{}{}:
			default: // one is enough
			}
		}
	})
	return nil
}

// written decides whether the worker that has just created a result is the one to be cut off: the first is.
func (f *fleet) written(kill context.CancelFunc) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cutOff > 0 || f.lab.kept {
		return false
	}
	f.cutOff, f.cutAt = 1, time.Now()
	f.done.Go(func() {
		kill()
		if err := f.add(); err != nil {
			f.lab.log.Error("the worker that was cut off could not be replaced", "err", err)
		}
	})
	return true
}

// locksEnd is when the broker gives back what the worker that was cut off held; long ago if there is none yet.
func (f *fleet) locksEnd() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cutAt.Add(queueLock)
}

// stop drains every worker and waits for all of them.
func (f *fleet) stop() error {
	f.mu.Lock()
	f.stopped = true
	for _, cancel := range f.stopAll {
		cancel()
	}
	f.mu.Unlock()
	f.done.Wait()
	return errors.Join(f.errs...)
}
