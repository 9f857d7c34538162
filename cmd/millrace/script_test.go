package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"millrace/cmd/worker/app"
	"millrace/test/blobtest"
)

// runWorker is what the worker's container does, for scripts that start it as a process.
func runWorker() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	cfg, err := app.FromEnv(os.LookupEnv)
	if err == nil {
		err = app.Run(ctx, cfg)
	}
	switch {
	case err == nil:
		return
	case app.IsConfiguration(err) || cfg.Queue == "":
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(exitUsage)
	}
	os.Stderr.WriteString(err.Error() + "\n")
	os.Exit(exitFailed)
}

type labKey struct{}

// TestScripts runs the program as people do, each script in a lab of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               openScriptLab,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": cmdCode, "working": cmdWorking, "remove": cmdRemove, "envsubst": cmdEnvsubst,
		},
	})
}

// openScriptLab gives a script emulators and the environment of a client.
func openScriptLab(env *testscript.Env) error {
	l, err := openLab(labOptions{
		tpm: 1_000_000, replicas: 1, maxDocument: 4096, kept: true, log: slog.New(slog.DiscardHandler),
	})
	env.Defer(func() {
		if err := l.close(); err != nil {
			env.T().Fatal(err)
		}
	})
	if err != nil {
		return err
	}
	if err := l.createContainers(context.Background()); err != nil {
		return err
	}
	samples, err := l.writeSamples()
	if err != nil {
		return err
	}
	for _, e := range append(l.environment(), setting{"SAMPLES", samples}, setting{"ACCOUNT", l.accountURL()}, setting{"BUSY", strings.TrimPrefix(l.blobURL, "http://")}) {
		env.Setenv(e.name, e.value)
	}
	env.Values[labKey{}] = l
	return nil
}

// cmdCode is "code N program args...": the program must end with exit code N.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// cmdWorking starts a worker in the lab.
func cmdWorking(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(ts.Value(labKey{}).(*lab).fleet.start(1))
}

// cmdRemove is "remove BLOB...": it takes documents away.
func cmdRemove(ts *testscript.TestScript, neg bool, args []string) {
	l := ts.Value(labKey{}).(*lab)
	for _, name := range args {
		if removed := l.blobs.Remove(blobtest.DevAccount, inputContainer, name); removed == neg {
			ts.Fatalf("remove %s: there was one: %t", name, removed)
		}
	}
}

// cmdEnvsubst is "envsubst FILE": it puts the environment's values into a file.
func cmdEnvsubst(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		path := ts.MkAbs(name)
		ts.Check(os.WriteFile(path, []byte(os.Expand(ts.ReadFile(name), ts.Getenv)), 0o600))
	}
}
