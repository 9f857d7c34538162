package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"
)

// Checks are what /readyz asks, by name: each says why this process is not ready, or "".
type Checks map[string]func() string

// lines lists the checks in the order of their names, and whether all pass.
func (c Checks) lines() (lines []string, ready bool) {
	ready = true
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if reason := c[name](); reason != "" {
			ready = false
			lines = append(lines, "[-]"+name+" failed: "+reason)
			continue
		}
		lines = append(lines, "[+]"+name+" ok")
	}
	return lines, ready
}

// Pages serves /metrics, /livez (this process runs; a kubelet restarts it when not, so it never depends on anybody else)
// and /readyz (503 while a check fails; ?verbose lists them).
func (t *Telemetry) Pages(checks Checks) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.metrics)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		lines, ok := checks.lines()
		status, word := http.StatusOK, "ok"
		if !ok {
			status, word = http.StatusServiceUnavailable, "not ready"
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		if r.URL.Query().Has("verbose") || !ok {
			for _, line := range lines {
				fmt.Fprintln(w, line)
			}
		}
		fmt.Fprintln(w, word)
	})
	return mux
}

// Serve serves h on l until ctx ends, and returns when the last request is answered, or after a second.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		stopped <- server.Shutdown(last)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return <-stopped
}
