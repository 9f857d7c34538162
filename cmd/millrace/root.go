package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/cmd/worker/app"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a mistake in how a command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run is the whole program with everything it touches passed in.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "millrace",
		Short:         "LLM work from a Service Bus queue, under one quota",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{flagAdvice(err)} })
	root.AddCommand(devCommand(), submitCommand(), resultsCommand(), catalogCommand(), versionCommand())
	root.SetHelpCommand(helpCommand())
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = noArgs, root.RunE // a shell that it does not know is a mistake, not a question
		for _, shell := range completion.Commands() {
			shell.Args = noArgs
		}
	}

	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, syscall.EPIPE):
		return exitFailed // whoever read has gone, as head does: nobody to tell
	case errors.As(err, new(usageError)):
		if cmd.Name() == "help" {
			cmd = root
		}
		fmt.Fprintf(stderr, "millrace: %v; see \"%s --help\"\n", err, cmd.CommandPath())
		return exitUsage
	case app.IsConfiguration(err), errors.As(err, new(setupError)):
		fmt.Fprintf(stderr, "millrace: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "millrace: %v\n", err)
	return exitFailed
}

// flagAdvice says what a flag wants, in place of the parser's own words.
func flagAdvice(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	wants := map[string]string{"int": "a whole number", "bool": "true or false", "duration": "a duration such as 90s or 2h"}[invalid.GetFlag().Value.Type()]
	if wants == "" {
		return err
	}
	return fmt.Errorf("--%s %q: use %s", invalid.GetFlag().Name, invalid.GetValue(), wants)
}

// noArgs refuses arguments, and an unknown command among them, as a mistake of usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasAvailableSubCommands() {
		return usageError{fmt.Errorf("unexpected argument %q: %s takes flags only", args[0], cmd.CommandPath())}
	}
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usageError{fmt.Errorf("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))}
	}
	return usageError{fmt.Errorf("unknown command %q", args[0])}
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Say more about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return usageError{err}
			}
			if len(rest) > 0 {
				return noArgs(about, rest)
			}
			return about.Help()
		},
	}
}

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return encode(cmd.OutOrStdout(), map[string]string{
					"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "millrace", version())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead of text")
	return cmd
}

// version is that of the module, or, built outside a release, the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "development"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "development " + s.Value
		}
	}
	return "development"
}
