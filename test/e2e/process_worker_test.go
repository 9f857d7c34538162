package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/test/blobtest"
)

// workerProcess is one running worker.
type workerProcess struct {
	t       *testing.T
	cmd     *exec.Cmd
	out     bytes.Buffer  // standard output; read it after exited
	logs    lines         // standard error
	exited  chan struct{} // closed when the process is gone and its output is read
	started time.Time
}

// launch runs the binary with this environment and no other. The process ends with the test at the latest.
func launch(t *testing.T, binary string, env map[string]string) *workerProcess {
	t.Helper()
	w := &workerProcess{t: t, cmd: exec.Command(binary), exited: make(chan struct{})}
	w.cmd.Env = []string{} // nil would hand on the environment of the test
	for name, value := range env {
		w.cmd.Env = append(w.cmd.Env, name+"="+value)
	}
	w.cmd.Dir = t.TempDir()
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.logs
	w.started = time.Now()
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = w.cmd.Wait() // the state says more
		close(w.exited)
	}()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.exited
	})
	return w
}

func (w *workerProcess) signal(s os.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatalf("signal %v: %v; it said:\n%s", s, err, w.logs.text())
	}
}

// awaitExit waits for the end of the process and returns its exit code, -1 if a signal ended it.
func (w *workerProcess) awaitExit(limit time.Duration) int {
	w.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.exited:
		return w.cmd.ProcessState.ExitCode()
	case <-timer.C:
		w.t.Fatalf("the process still runs after %v; it said:\n%s", limit, w.logs.text())
		return 0
	}
}

// insist sends a signal until the process has ended, as an impatient person does: one that comes right after the first is
// taken for its echo.
func (w *workerProcess) insist(s os.Signal) {
	w.t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for range 1000 {
		if err := w.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			w.t.Fatalf("signal %v: %v", s, err)
		}
		select {
		case <-w.exited:
			return
		case <-again.C:
		}
	}
	w.t.Fatalf("the process still runs; it said:\n%s", w.logs.text())
}

// endedBy is the signal that ended the process, -1 if it exited by itself.
func (w *workerProcess) endedBy() syscall.Signal {
	if status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return -1
}

// drain asks the process to go and wants it to go well.
func (w *workerProcess) drain() {
	w.t.Helper()
	w.signal(syscall.SIGTERM)
	if code := w.awaitExit(patience); code != 0 {
		w.t.Errorf("exit code after SIGTERM = %d, want 0; it said:\n%s", code, w.logs.text())
	}
}

// checkLogs holds what is true of everything a worker says: one JSON object a line, on standard error alone, and nothing
// in it that is not for the operator's eyes. The process has ended.
func (w *workerProcess) checkLogs() []map[string]any {
	w.t.Helper()
	<-w.exited
	if w.out.Len() > 0 {
		w.t.Errorf("standard output = %q, want nothing", w.out.String())
	}
	var records []map[string]any
	for line := range strings.Lines(w.logs.text()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			w.t.Errorf("log line %q is no JSON object: %v", line, err)
			continue
		}
		for _, field := range []string{"time", "level", "msg"} {
			if _, ok := record[field].(string); !ok {
				w.t.Errorf("log line %q has no %s", line, field)
			}
		}
		records = append(records, record)
	}
	w.checkSecrets()
	return records
}

func (w *workerProcess) checkSecrets() {
	w.t.Helper()
	text := w.logs.text()
	for _, secret := range []string{"CANARY", blobtest.DevKey, url.QueryEscape(blobtest.DevKey), "sig=", "SharedAccessSignature", "Bearer "} {
		if i := strings.Index(text, secret); i >= 0 {
			w.t.Errorf("the log holds %q: …%s…", secret, text[max(0, i-200):min(len(text), i+len(secret)+80)])
		}
	}
}

// lines is what a process writes, readable while it runs.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// buildWorker builds the command as it is shipped but for flags, and with the race detector when the test has it.
func buildWorker(t *testing.T, flags ...string) string {
	t.Helper()
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" || runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skipf("%s has no SIGTERM to drain a worker with", runtime.GOOS)
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("the worker cannot be built: %v", err)
	}
	// The test cache watches the files that this process opens, not those of the compiler; all but main.go is linked in.
	if _, err := os.ReadFile("../../cmd/worker/main.go"); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "worker")
	args := append([]string{"build", "-ldflags", "-s -w", "-o", binary}, flags...)
	if raceDetector {
		args = append(args, "-race")
	}
	build := exec.CommandContext(t.Context(), "go", append(args, "millrace/cmd/worker")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}
