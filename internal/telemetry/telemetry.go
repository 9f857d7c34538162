// Package telemetry makes the metrics and traces of one process, and the three pages that operators and kubelets ask for.
//
// Metrics are scraped in Prometheus' format. Traces are pushed over OTLP/HTTP when the standard environment names an
// endpoint (OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT), and are not made otherwise. Names follow
// the OpenTelemetry semantic conventions v1.41.0, the last that have the generative AI names; ours begin with millrace.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Scope is the instrumentation scope of everything that is ours.
const Scope = "millrace"

// Telemetry is one process's meter and tracer. Close it last.
type Telemetry struct {
	Meter  metric.Meter
	Tracer trace.Tracer

	metrics http.Handler
	close   []func(context.Context) error
}

// Open makes the telemetry of a service of this name, unless OTEL_SERVICE_NAME says another. lookup reads the
// environment.
func Open(ctx context.Context, service string, lookup func(string) (string, bool)) (*Telemetry, error) {
	from, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName(service)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describe this process: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithResource(from), sdkmetric.WithReader(exporter))
	t := &Telemetry{
		Meter:   meters.Meter(Scope),
		Tracer:  noop.NewTracerProvider().Tracer(Scope),
		metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		close:   []func(context.Context) error{meters.Shutdown},
	}
	if !tracing(lookup) {
		return t, nil
	}
	spans, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("open trace export: %w", err)
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithResource(from), sdktrace.WithBatcher(spans))
	t.Tracer = tracers.Tracer(Scope)
	t.close = append(t.close, tracers.Shutdown)
	return t, nil
}

// tracing reports whether the standard environment asks for traces ("OpenTelemetry Environment Variable Specification").
func tracing(lookup func(string) (string, bool)) bool {
	value := func(name string) string { v, _ := lookup(name); return strings.TrimSpace(v) }
	if strings.EqualFold(value("OTEL_SDK_DISABLED"), "true") || strings.EqualFold(value("OTEL_TRACES_EXPORTER"), "none") {
		return false
	}
	return value("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Close pushes what is left and ends the export.
func (t *Telemetry) Close(ctx context.Context) error {
	var errs []error
	for _, f := range t.close {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}
