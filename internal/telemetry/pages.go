package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Readiness is what /readyz reports: named checks, each passing or with the reason why not. The zero value is ready.
type Readiness struct {
	mu     sync.Mutex
	checks map[string]string // "" passes
}

// Set notes the state of a check; an empty reason passes.
func (r *Readiness) Set(check, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checks == nil {
		r.checks = make(map[string]string)
	}
	r.checks[check] = reason
}

// lines lists the checks in the order of their names, and whether all pass.
func (r *Readiness) lines() (lines []string, ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready = true
	for check, reason := range r.checks {
		if reason == "" {
			lines = append(lines, "[+]"+check+" ok")
			continue
		}
		ready = false
		lines = append(lines, "[-]"+check+" failed: "+reason)
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[3:], b[3:]) })
	return lines, ready
}

// Pages serves /metrics, /livez (this process runs; a kubelet restarts it when not, so it never depends on anybody else)
// and /readyz (503 while a check fails; ?verbose lists them).
func (t *Telemetry) Pages(ready *Readiness) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.metrics)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		lines, ok := ready.lines()
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
