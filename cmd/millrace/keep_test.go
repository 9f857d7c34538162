package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/cmd/worker/app"
)

// heard is a buffer that tells when a text was written to it.
type heard struct {
	mu   sync.Mutex
	b    bytes.Buffer
	text string
	once sync.Once
	done chan struct{}
}

func hear(text string) *heard { return &heard{text: text, done: make(chan struct{})} }

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b.Write(p)
	if strings.Contains(h.b.String(), h.text) {
		h.once.Do(func() { close(h.done) })
	}
	return len(p), nil
}

func (h *heard) String() string { h.mu.Lock(); defer h.mu.Unlock(); return h.b.String() }

// keep runs "millrace dev --keep" until the test or stop ends it. It returns when what ready is told of was said.
func keep(t *testing.T, stdout io.Writer, stderr io.Writer, ready *heard, args ...string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append([]string{"dev", "--keep"}, args...), stdout, stderr) }()
	stop = sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() { stop() })
	select {
	case <-ready.done:
	case code := <-ended:
		ended <- code
		t.Fatalf("dev --keep ended with %d before it was ready", code)
	}
	return stop
}

// TestDevKeepPrintsWhatWorks pastes what it prints: the environment, a worker of its own, the submit and list commands.
func TestDevKeepPrintsWhatWorks(t *testing.T) {
	stdout, stderr := hear("\n"), hear("Ctrl-C")
	stop := keep(t, stdout, stderr, stderr, "--workers", "0")
	for line := range strings.Lines(stdout.String()) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "export "), "=")
		if !ok || !strings.HasPrefix(line, "export ") {
			t.Fatalf("standard output has the line %q, want exports only", line)
		}
		t.Setenv(name, strings.Trim(value, "'"))
	}
	cfg, err := app.FromEnv(os.LookupEnv)
	if err != nil {
		t.Fatalf("a worker cannot use the environment: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		if err := app.Run(ctx, cfg); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	defer working.Wait()
	defer cancel()
	for command, want := range map[string]string{"submit": "10 claims: 9 succeeded, 1 refused", "results": ""} {
		_, rest, ok := strings.Cut(stderr.String(), " "+command+" ")
		if !ok {
			t.Fatalf("no %s command in:\n%s", command, stderr.String())
		}
		line, _, _ := strings.Cut(rest, "\n")
		code, _, said := call(t, append([]string{command}, strings.Fields(line)...)...)
		if code != exitOK || !strings.Contains(said, want) {
			t.Errorf("%s %s = %d and %q, want 0 and %q", command, line, code, said, want)
		}
	}
	cancel()
	working.Wait()
	if code := stop(); code != exitOK {
		t.Errorf("exit code = %d, want 0; it says:\n%s", code, stderr)
	}
	if _, err := os.Stat(cfg.Catalog); !os.IsNotExist(err) {
		t.Errorf("the catalog is left behind: %v", err)
	}
}

func TestDevKeepJSONWithSamples(t *testing.T) {
	stdout := hear(`"documents":26`)
	stop := keep(t, stdout, io.Discard, stdout, "--json", "--samples")
	d := json.NewDecoder(strings.NewReader(stdout.String()))
	var first struct{ Environment, Commands map[string]string }
	var s summary
	if err := d.Decode(&first); err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(&s); err != nil || d.More() {
		t.Fatalf("standard output has more than two objects, or: %v", err)
	}
	if first.Environment["MILLRACE_QUEUE"] != sampleQueue || first.Commands["submit"] == "" {
		t.Errorf("the first object is %+v", first)
	}
	got := []int{s.Succeeded, s.Refused, s.Failed, s.DeadLettered, s.Lost, s.CutOff}
	if diff := cmp.Diff([]int{22, 2, 1, 1, 0, 0}, got); diff != "" {
		t.Errorf("succeeded, refused, failed, dead-lettered, lost, cut off (-want +got):\n%s", diff)
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit code = %d, want 0", code)
	}
}

func TestDevPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if port > 65533 {
		t.Skip("the port has no two others behind it")
	}
	code, stdout, stderr := call(t, "dev", "--keep", "--port-base", strconv.Itoa(port))
	if want := "address already in use; choose another, or leave it out for any"; code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("dev --port-base with a taken port = %d, %q and %q, want 2, nothing and %q", code, stdout, stderr, want)
	}
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"doc-ingest": "doc-ingest", "/tmp/a.yaml": "/tmp/a.yaml", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "a;b": "'a;b'", "$x": "'$x'",
	} {
		if got := quoted(in); got != want {
			t.Errorf("quoted(%q) = %s, want %s", in, got, want)
		}
	}
}
