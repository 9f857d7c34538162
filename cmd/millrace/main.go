// Command millrace is the command line for people.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how long a signal may repeat itself and still be the first: timeout(1) sends it to the process and to its
// group.
const sameSignal = 50 * time.Millisecond

func main() {
	signal.Ignore(syscall.SIGPIPE) // a reader that has gone is an error of a write, so that a run can clean up
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, restore) }) // then a second one ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
