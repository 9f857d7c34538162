package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"millrace/test/sbtest"
	"millrace/worker"
)

// runOn makes a worker over its own broker and returns what Run returned, for workers that end by themselves.
func runOn(t *testing.T, b *sbtest.Server, h worker.Handler, opts *worker.Options) (*worker.Worker, func() error) {
	t.Helper()
	pool, err := worker.NewPool(1, func() (*azservicebus.Client, error) { return client(b, nil) })
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(pool, queue, h, opts)
	return w, func() error {
		defer b.Close()
		defer pool.Close(context.Background())
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		err := w.Run(ctx)
		if ctx.Err() != nil {
			return errors.New("ended only with its context")
		}
		return err
	}
}

func TestRunEndsWhenIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &sbtest.Server{AutoCreate: true}
		w, run := runOn(t, b, func(ctx context.Context, _ *worker.Message) worker.Verdict {
			<-time.After(40 * time.Second) // longer than the idle time: work in hand is not idle
			return worker.Done(worker.Answered, "succeeded", "")
		}, &worker.Options{IdleExit: 30 * time.Second, Slots: 1})
		for _, id := range []string{"a", "b"} {
			if err := b.Send(queue, sbtest.Message{ID: id, Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := run(); err != nil {
			t.Fatalf("Run() = %v, want nil", err)
		}
		if took := time.Since(began).Round(time.Second); took < 110*time.Second || took > 112*time.Second {
			t.Errorf("Run() ended after %v, want two messages of 40s and 30s of quiet", took)
		}
		if n := w.Counts().Verdicts[worker.Answered].Load(); n != 2 {
			t.Errorf("answered = %d, want 2", n)
		}
	})
}

func TestRunRefusesASessionQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &sbtest.Server{AutoCreate: true}
		b.Inject(sbtest.Fault{Point: sbtest.OnAttachReceiver, Condition: "amqp:not-allowed", Times: -1,
			Description: "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."})
		_, run := runOn(t, b, answered, nil)
		if err := run(); !errors.Is(err, worker.ErrSessionQueue) || !strings.Contains(err.Error(), queue) {
			t.Errorf("Run() = %v, want ErrSessionQueue with the queue's name", err)
		}
	})
}

func TestRunTracesAMessageAndMeasures(t *testing.T) {
	const producer = "0af7651916cd43dd8448eb211c80319c"
	bubble(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		reader := metric.NewManualReader()
		meters := metric.NewMeterProvider(metric.WithReader(reader))
		l := start(t, nil, func(ctx context.Context, _ *worker.Message) worker.Verdict {
			if !trace.SpanContextFromContext(ctx).IsValid() {
				t.Error("the handler's context has no span")
			}
			return worker.Done(worker.Refused, "refused", "prompt_filter")
		}, &worker.Options{Slots: 4, Tracer: tracers.Tracer("t"), Meter: meters.Meter("t")})
		for _, name := range []string{"traceparent", "Diagnostic-Id"} {
			if err := l.broker.Send(queue, sbtest.Message{ID: name, Body: []byte("x"), ApplicationProperties: map[string]any{
				name: "00-" + producer + "-b7ad6b7169203331-01"}}); err != nil {
				t.Fatal(err)
			}
		}
		l.await(empty)
		synctest.Wait() // the last settlement is counted after the broker has it
		var read metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &read); err != nil {
			t.Fatal(err)
		}
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}

		var names []string
		for _, s := range spans.GetSpans() {
			names = append(names, s.Name)
			if s.Name != "process "+queue {
				continue
			}
			if len(s.Links) != 1 || s.Links[0].SpanContext.TraceID().String() != producer {
				t.Errorf("the process span is not linked to its producer: %v", s.Links)
			}
		}
		for want, n := range map[string]int{"process " + queue: 2, "settle " + queue: 2} {
			if got := len(slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s != want })); got != n {
				t.Errorf("spans %q = %d, want %d", want, got, n)
			}
		}
		if !slices.Contains(names, "receive "+queue) {
			t.Errorf("spans = %v, want a receive", names)
		}
		if got := verdicts(read)["refused"]; got != 2 {
			t.Errorf("millrace.verdicts{refused} = %d, want 2", got)
		}
		if got, known := verdicts(read)["poison"]; got != 0 || !known {
			t.Errorf("millrace.verdicts{poison} = %d, exists %v, want a zero from the start", got, known)
		}
	})
}

func verdicts(read metricdata.ResourceMetrics) map[string]int64 {
	counts := map[string]int64{}
	for _, scope := range read.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if m.Name != "millrace.verdicts" || !ok {
				continue
			}
			for _, p := range sum.DataPoints {
				v, _ := p.Attributes.Value("verdict")
				counts[v.AsString()] = p.Value
			}
		}
	}
	return counts
}
