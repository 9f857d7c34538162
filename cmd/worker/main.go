// Command worker is the container's entry point: one process of the fleet. Its settings come from the environment.
package main

import (
	"fmt"
	"os"

	"millrace/cmd/worker/app"
)

func main() { os.Exit(run()) }

// run returns 0 after a clean drain, 1 after a failure and 2 for a bad configuration.
func run() int {
	cfg, err := app.FromEnv(os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	app.SizeHeap(os.LookupEnv, os.DirFS("/sys/fs/cgroup"))
	ctx, stop := app.Signals() // the first one drains, a second one ends the process at once
	defer stop()
	if err := app.Run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if app.IsConfiguration(err) {
			return 2
		}
		return 1
	}
	return 0
}
