// Command worker measures the fleet's worker against two loops over the same SDKs, in the same run: the bare loop that a
// careful engineer would tune, and the loop as one would write it first.
//
// Every run is a process of its own that holds the emulators and fills the queue, and starts the subject as its child;
// so no run inherits a heap, a connection or a port from another one. See the README of test/bench for the method.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	// The first signal ends the run that is under way, and with it everything that it started.
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stdout)
	restore()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is the bench, or the part of it that the arguments name.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench-worker", flag.ContinueOnError)
	smoke := flags.Bool("smoke", false, "few messages, one round: checks that everything works, measures nothing")
	rounds := flags.Int("rounds", 5, "rounds; each runs every cell with every subject")
	budget := flags.Duration("budget", 330*time.Second, "no round is begun that would end later than this")
	profile := flags.String("profile", "", "existing folder for profiles of the subjects, CPU and allocations of each run; the figures suffer")
	world := flags.String("world", "", "internal: run one world, described in JSON")
	subject := flags.String("subject", "", "internal: be this subject, configured by the environment")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *subject != "":
		return beSubject(ctx, *subject)
	case *world != "":
		return beWorld(ctx, *world, out)
	}
	p := plan{cells: fullCells(), rounds: *rounds, budget: *budget, profile: *profile}
	if *smoke {
		p.cells, p.rounds = smokeCells(), 1
	}
	results, err := p.run(ctx, os.Stderr)
	if err != nil {
		return err
	}
	return report(out, results)
}

// beWorld is the process of one run.
func beWorld(ctx context.Context, description string, out io.Writer) error {
	var s spec
	if err := json.Unmarshal([]byte(description), &s); err != nil {
		return fmt.Errorf("read description of the run: %w", err)
	}
	figures, err := s.run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(figures)
}
