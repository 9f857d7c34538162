// Command worker is the container's entry point: one process of the fleet. Its settings come from the environment.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"millrace/cmd/worker/app"
)

const sameSignal = 50 * time.Millisecond

func main() { os.Exit(run()) }

// run returns 0 after a clean drain, 1 after a failure and 2 for a bad configuration.
func run() int {
	cfg, err := app.FromEnv(os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	app.SizeHeap(os.LookupEnv, os.DirFS("/sys/fs/cgroup"))
	// The first signal drains. Then the signals mean what they always mean, so a second one ends the process at once; but
	// timeout(1) sends its one signal twice, to the process and to its group.
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer restore()
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, restore) })
	if err := app.Run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if app.IsConfiguration(err) {
			return 2
		}
		return 1
	}
	return 0
}
