package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// keptReplicas is how many workers of other processes have a share of the quota beside those of a kept lab.
const keptReplicas = 4

// setting is one line of an environment.
type setting struct{ name, value string }

// environment is what every client and every other worker of a kept lab needs.
func (l *lab) environment() []setting {
	var all []setting
	for _, name := range []string{
		"SERVICEBUS_CONNECTION_STRING", "AZURE_STORAGE_CONNECTION_STRING",
		"MILLRACE_QUEUE", "MILLRACE_CATALOG", "MILLRACE_RESULTS", "MILLRACE_MAX_REPLICAS",
	} {
		all = append(all, setting{name, l.settings[name]})
	}
	return append(all, setting{"MILLRACE_LISTEN", "127.0.0.1:0"}) // any port, so that several workers can run
}

// keep says how to reach a kept lab: on standard output what a shell can read, on standard error what a person can
// paste.
func (l *lab) keep(s *screen) error {
	docs, err := l.writeSamples()
	if err != nil {
		return err
	}
	millrace, worker := programs()
	commands := map[string]string{
		"worker": worker,
		"submit": fmt.Sprintf("%s submit --tenant %s --model %s --wait %s", millrace, tenantRetail, aliasIngest, quoted(docs)),
		"list":   fmt.Sprintf("%s results list --tenant %s", millrace, tenantRetail),
	}
	env := l.environment()
	if s.json {
		values := make(map[string]string, len(env))
		for _, e := range env {
			values[e.name] = e.value
		}
		return encode(s.out, struct {
			Environment map[string]string `json:"environment"`
			Commands    map[string]string `json:"commands"`
		}{values, commands})
	}
	for _, e := range env {
		if _, err := fmt.Fprintf(s.out, "export %s=%s\n", e.name, quoted(e.value)); err != nil {
			return err
		}
	}
	s.note("\nIn another terminal, after the lines above (up to %d more workers share the quota):\n", keptReplicas)
	for _, name := range []string{"worker", "submit", "list"} {
		s.note("  %s", commands[name])
	}
	s.note("\nAll of it runs until Ctrl-C, and then nothing is left.")
	return nil
}

// writeSamples puts the samples beside the catalog, for whoever has no documents at hand, and returns the folder of those
// that the printed command submits.
func (l *lab) writeSamples() (string, error) {
	documents, err := sampleDocuments()
	if err != nil {
		return "", err
	}
	for _, d := range documents { // whoever sends them
		if body, err := d.read(); err == nil && refusedSample.MatchString(d.name) {
			l.refuse(body)
		}
	}
	docs, err := fs.Sub(samples, "samples/docs")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(l.folder, "samples")
	if err := os.CopyFS(dir, docs); err != nil {
		return "", fmt.Errorf("write samples: %w", err)
	}
	return filepath.Join(dir, tenantRetail, aliasIngest), nil
}

// await keeps the lab until somebody stops it or a worker ends by itself.
func (l *lab) await(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.fleet.ended:
		return errWorkerEnded
	}
}

// programs are the commands that start this program and a worker, as a shell finds them.
func programs() (millrace, worker string) {
	self := os.Args[0]
	if !strings.ContainsRune(self, filepath.Separator) {
		if _, err := exec.LookPath("worker"); err == nil {
			return self, "worker"
		}
		return self, "go run millrace/cmd/worker"
	}
	if abs, err := filepath.Abs(self); err == nil {
		self = abs
	}
	worker = filepath.Join(filepath.Dir(self), "worker")
	if info, err := os.Stat(worker); err != nil || !info.Mode().IsRegular() {
		return quoted(self), "go run millrace/cmd/worker"
	}
	return quoted(self), quoted(worker)
}

// quoted is a word of a shell.
func quoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._:-", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// encode writes one JSON value as one line.
func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
