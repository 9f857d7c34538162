package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	narrowest   = 80               // columns of a terminal that does not say
	stillAround = 10 * time.Second // a line that says nothing new is repeated this often where lines stay
)

// screen is what a run says while it goes on: facts on standard output, notes and progress on standard error.
type screen struct {
	out, err io.Writer
	json     bool
	silent   bool     // on standard error
	terminal *os.File // standard error if progress is a line that is written over, else nil

	shown string    // what the last progress line said that matters
	when  time.Time // of the last progress line
}

// newScreen is for a run with a summary. With JSON it says neither facts nor notes, since both are in that.
func newScreen(out, err io.Writer, json, verbose bool) *screen {
	s := &screen{out: out, err: err, json: json, silent: json}
	if f, ok := err.(*os.File); ok && !verbose && term.IsTerminal(int(f.Fd())) {
		s.terminal = f
	}
	return s
}

// newLineScreen is for a command that prints a line for each thing, or with JSON an object.
func newLineScreen(cmd *cobra.Command, json bool) *screen {
	s := newScreen(cmd.OutOrStdout(), cmd.ErrOrStderr(), json, false)
	s.silent = false
	return s
}

// say prints a fact. Its error is that nobody reads standard output any more.
func (s *screen) say(format string, args ...any) error {
	if s.json {
		return nil
	}
	_, err := fmt.Fprintf(s.out, format+"\n", args...)
	return err
}

// note prints what a person should know about.
func (s *screen) note(format string, args ...any) {
	if !s.silent {
		fmt.Fprintf(s.err, format+"\n", args...)
	}
}

// every is how often progress is worth a look.
func (s *screen) every() time.Duration {
	if s.terminal != nil {
		return 200 * time.Millisecond
	}
	return time.Second
}

// progress shows where a run stands at time t, and, if final, leaves it there.
func (s *screen) progress(p standing, t time.Time, final bool) {
	news := p.counts()
	if p.cause != "" {
		news += " and nothing happens" // whatever the seconds it counts down
	}
	s.show(p.line(), news, t, final)
}

// show prints a line of progress at time t, and, if final, leaves it there. Where lines stay, one whose news were told is
// not told again soon.
func (s *screen) show(line, news string, t time.Time, final bool) {
	if s.terminal != nil {
		fmt.Fprintf(s.err, "\r\x1b[K%.*s", s.width()-1, line) // the line is ASCII
		if final {
			fmt.Fprintln(s.err)
		}
		return
	}
	if s.silent || news == s.shown && t.Sub(s.when) < stillAround && !final {
		return
	}
	s.shown, s.when = news, t
	fmt.Fprintln(s.err, line)
}

func (s *screen) width() int {
	width, _, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil || width < 2 {
		return narrowest
	}
	return width
}
