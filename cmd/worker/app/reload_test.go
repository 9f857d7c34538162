package app_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"millrace/cmd/worker/app"
	"millrace/test/sbtest"
)

// lines is a log that tells of each line, so that tests wait for what happened.
type lines struct {
	mu    sync.Mutex
	all   []string
	wrote chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return len(p), nil
}

// await returns the first line with text in it.
func (l *lines) await(t *testing.T, text string) string {
	t.Helper()
	for {
		l.mu.Lock()
		for _, line := range l.all {
			if strings.Contains(line, text) {
				l.mu.Unlock()
				return line
			}
		}
		l.mu.Unlock()
		select {
		case <-l.wrote:
		case <-t.Context().Done():
			t.Fatalf("no line with %q", text)
		}
	}
}

// TestRunReloadsTheCatalogAsAConfigMapIsSwapped works on real files: the catalog is reached through a symbolic link that
// is replaced, as the kubelet does it.
func TestRunReloadsTheCatalogAsAConfigMapIsSwapped(t *testing.T) {
	bus := &sbtest.Server{AutoCreate: true}
	addr, err := bus.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	mount := t.TempDir()
	revision := func(name, prompt string, change func(string) string) {
		t.Helper()
		from := filepath.Dir(writeCatalog(t))
		dir := filepath.Join(mount, name)
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "catalog.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string]string{"catalog.yaml": change(string(text)), "prompt.md": prompt} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		next := filepath.Join(mount, "..next")
		if err := os.Symlink(name, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	same := func(s string) string { return s }
	revision("..1", "First.", same)
	for _, file := range []string{"catalog.yaml", "prompt.md"} {
		if err := os.Symlink(filepath.Join("..data", file), filepath.Join(mount, file)); err != nil {
			t.Fatal(err)
		}
	}

	cfg, err := app.FromEnv(settings(filepath.Join(mount, "catalog.yaml"), map[string]string{
		"SERVICEBUS_CONNECTION_STRING": "Endpoint=sb://" + addr.String() + ";SharedAccessKeyName=k;SharedAccessKey=k;UseDevelopmentEmulator=true",
		"MILLRACE_LISTEN":              "127.0.0.1:0",
	}))
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{wrote: make(chan struct{}, 1)}
	cfg.Logger, cfg.Credential = slog.New(slog.NewTextHandler(log, nil)), identity{}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, cfg) }()
	served := log.await(t, "pages served")
	log.await(t, "worker started")

	revision("..2", "Second.", same)
	log.await(t, "catalog reloaded")
	revision("..3", "Third.", func(s string) string { return strings.Replace(s, "version:", "versoin:", 1) })
	if line := log.await(t, "catalog not reloaded"); !strings.Contains(line, "versoin") || !strings.Contains(line, "catalog.yaml:") {
		t.Errorf("the log says %q, want the place and the key at fault", line)
	}

	_, address, _ := strings.Cut(strings.TrimSpace(served), "address=")
	if err := bus.Await(t.Context(), queue, func(s sbtest.Stats) bool { return s.Receivers > 0 }); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/livez": "ok", "/metrics": "millrace_slots", "/readyz?verbose": "queue"} {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(body), want) {
			t.Errorf("GET %s = %d without %q", path, resp.StatusCode, want)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

func TestRunSaysThatThePortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg, err := app.FromEnv(settings(writeCatalog(t), map[string]string{"MILLRACE_LISTEN": l.Addr().String()}))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger, cfg.Credential = slog.New(slog.DiscardHandler), identity{}
	err = app.Run(t.Context(), cfg)
	if !app.IsConfiguration(err) || !strings.Contains(err.Error(), "MILLRACE_LISTEN") || !strings.Contains(err.Error(), "or off") {
		t.Errorf("Run() = %v, want a configuration error that names the setting and the way out", err)
	}
}

func TestFromEnvRefusesASubscription(t *testing.T) {
	_, err := app.FromEnv(settings(writeCatalog(t), map[string]string{"MILLRACE_QUEUE": "uploads/Subscriptions/worker"}))
	if err == nil || !strings.Contains(err.Error(), "MILLRACE_QUEUE") || !strings.Contains(err.Error(), "subscription") {
		t.Errorf("FromEnv() = %v, want an error about the subscription", err)
	}
}
