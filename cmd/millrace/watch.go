package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"millrace/test/blobtest"
)

// progress shows where a run stands: a line that is written over on a terminal, plain lines otherwise, nothing for JSON.
type progress struct {
	w        io.Writer
	terminal bool
	quiet    bool
	last     string
}

func progressTo(w io.Writer, quiet bool) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, quiet: quiet, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

func (p *progress) show(line string, final bool) {
	switch {
	case p.quiet || line == p.last && !final:
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		if final {
			fmt.Fprintln(p.w)
		}
	default:
		fmt.Fprintln(p.w, line)
	}
	p.last = line
}

// watch returns when every message is settled, and shows progress until then. What it shows is what the emulators count.
func (l *lab) watch(ctx context.Context, claims []submission, p *progress, began time.Time) error {
	idle := make(chan error, 1)
	go func() { idle <- l.bus.AwaitEmpty(ctx, sampleQueue) }()
	every := time.Second
	if p.terminal {
		every = 200 * time.Millisecond
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case err := <-idle:
			p.show(l.standing(claims, began), true)
			if err != nil {
				return fmt.Errorf("stopped before every message was settled: %w", err)
			}
			return nil
		case <-ticker.C:
			p.show(l.standing(claims, began), false)
		}
	}
}

func (l *lab) standing(claims []submission, began time.Time) string {
	s := l.bus.Stats(sampleQueue)
	results := len(l.blobs.List(blobtest.DevAccount, resultContainer, ""))
	done := results + s.DeadLettered
	line := fmt.Sprintf("%4.1f s  %d of %d documents done: %d results, %d dead-lettered, %d in hand, %d waiting, %d calls",
		time.Since(began).Seconds(), done, len(claims), results, s.DeadLettered, s.Locked, s.Active, l.model.Calls())
	return line
}
