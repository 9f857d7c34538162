package telemetry_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"millrace/internal/telemetry"
)

func env(pairs ...string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		for _, p := range pairs {
			if name, value, _ := strings.Cut(p, "="); name == key {
				return value, true
			}
		}
		return "", false
	}
}

func open(t *testing.T, pairs ...string) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.Open(t.Context(), "worker", env(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Close(context.Background()); err != nil {
			t.Logf("close telemetry: %v", err)
		}
	})
	return tel
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(body)
}

func TestPagesShowMetrics(t *testing.T) {
	tel := open(t)
	c, err := tel.Meter.Int64Counter("millrace.verdicts", metric.WithUnit("{message}"))
	if err != nil {
		t.Fatal(err)
	}
	c.Add(t.Context(), 3, metric.WithAttributes(attribute.String("verdict", "answered")))
	status, body := get(t, tel.Pages(nil), "/metrics")
	if status != 200 || !strings.Contains(body, `millrace_verdicts_total{verdict="answered"} 3`) {
		t.Errorf("/metrics = %d without the counter:\n%s", status, body)
	}
	if !strings.Contains(body, "go_goroutines") {
		t.Error("/metrics has nothing about the Go runtime")
	}
}

func TestPagesTellReadiness(t *testing.T) {
	queue := ""
	pages := open(t).Pages(telemetry.Checks{"queue": func() string { return queue }, "catalog": func() string { return "" }})
	for _, tc := range []struct {
		name, queue, path string
		status            int
		body              string
	}{
		{"live always", "down", "/livez", 200, "ok\n"},
		{"not ready says why", "down", "/readyz", 503, "[+]catalog ok\n[-]queue failed: down\nnot ready\n"},
		{"ready is short", "", "/readyz", 200, "ok\n"},
		{"verbose lists checks", "", "/readyz?verbose", 200, "[+]catalog ok\n[+]queue ok\nok\n"},
	} {
		queue = tc.queue
		if status, body := get(t, pages, tc.path); status != tc.status || body != tc.body {
			t.Errorf("%s: GET %s = %d %q, want %d %q", tc.name, tc.path, status, body, tc.status, tc.body)
		}
	}
}

func TestOpenTracesOnlyWhenAskedTo(t *testing.T) {
	for _, tc := range []struct {
		name  string
		env   []string
		spans bool
	}{
		{"nothing set", nil, false},
		{"endpoint", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"}, true},
		{"traces endpoint", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:4318/v1/traces"}, true},
		{"disabled", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_SDK_DISABLED=true"}, false},
		{"exporter none", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER=none"}, false},
	} {
		_, span := open(t, tc.env...).Tracer.Start(t.Context(), "x")
		if got := span.SpanContext().IsValid(); got != tc.spans {
			t.Errorf("%s: spans are made = %v, want %v", tc.name, got, tc.spans)
		}
	}
}

func TestServeUntilTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- telemetry.Serve(ctx, l, open(t).Pages(nil)) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve() = %v, want nil", err)
	}
}
