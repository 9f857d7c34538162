package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// echo is how long a signal may repeat itself and still be the first: timeout(1) sends its one signal to the process and
// to its group.
const echo = 50 * time.Millisecond

// Signals returns a context that ends with the first SIGTERM or SIGINT. Another one ends the process at once, with exit
// code 128 + its number: the default action of a signal would end PID 1 of a container with Go's exit code 2, which means
// a bad configuration here. stop gives the signals back.
func Signals() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	stopped := make(chan struct{})
	go func() {
		defer cancel()
		var first time.Time
		for {
			select {
			case <-stopped:
				return
			case s := <-signals:
				if first.IsZero() {
					first = time.Now()
					cancel()
				} else if number, ok := s.(syscall.Signal); ok && time.Since(first) > echo {
					os.Exit(128 + int(number))
				}
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
	}
}
