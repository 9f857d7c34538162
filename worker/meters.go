package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
)

// meters are the metrics and spans of a worker. Every series exists from the start, at zero.
type meters struct {
	tracer   trace.Tracer
	queue    attribute.KeyValue
	duration metric.Float64Histogram
	reading  metric.Registration
}

// newMeters makes what w measures; busy is the number of messages in hand.
func newMeters(w *Worker, busy *atomic.Int64) (*meters, error) {
	m := &meters{tracer: w.opts.Tracer, queue: semconv.MessagingDestinationName(w.queue)}
	meter := w.opts.Meter
	if m.tracer == nil {
		m.tracer = nooptrace.NewTracerProvider().Tracer("")
	}
	if meter == nil {
		meter = noopmetric.NewMeterProvider().Meter("")
	}
	var errs []error
	var observed []metric.Observable
	keep := func(o metric.Observable, err error) {
		observed = append(observed, o)
		errs = append(errs, err)
	}
	counter := func(name, unit, description string) metric.Int64ObservableCounter {
		c, err := meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		keep(c, err)
		return c
	}
	slots, err := meter.Int64ObservableGauge("millrace.slots", metric.WithUnit("{slot}"),
		metric.WithDescription("Slots of this process, by state: used by a message in hand, or free."))
	keep(slots, err)
	verdicts := counter("millrace.verdicts", "{message}", "Messages by their final verdict.")
	held := counter("millrace.holds", "{hold}", "Pauses of a message in its slot, waiting for a dependency.")
	drained := counter("millrace.drained", "{message}", "Messages abandoned because of a drain; each cost one delivery.")
	unsettled := counter("millrace.unsettled", "{message}", "Settlements that failed, or whose answer was lost.")
	lost := counter("millrace.locks.lost", "{lock}", "Handlers cut short by a lost lock.")
	renewed := counter("millrace.locks.renewed", "{lock}", "Lock renewals.")
	rebuilt := counter("millrace.links.rebuilt", "{link}", "Receivers closed because their link was dead.")
	m.duration, err = meter.Float64Histogram("messaging.process.duration", metric.WithUnit("s"),
		metric.WithDescription("Time of a message in its slot, from delivery to settlement."),
		metric.WithExplicitBucketBoundaries(0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 900, 3600))
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	c := &w.counts
	m.reading, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		used := busy.Load()
		o.ObserveInt64(slots, used, metric.WithAttributes(attribute.String("state", "used")))
		o.ObserveInt64(slots, int64(w.opts.Slots)-used, metric.WithAttributes(attribute.String("state", "free")))
		for _, k := range Kinds() {
			o.ObserveInt64(verdicts, c.Verdicts[k].Load(), metric.WithAttributes(attribute.String("verdict", k.String())))
		}
		o.ObserveInt64(held, c.Held.Load())
		o.ObserveInt64(drained, c.Drained.Load())
		o.ObserveInt64(unsettled, c.Unsettled.Load())
		o.ObserveInt64(lost, c.LocksLost.Load())
		o.ObserveInt64(renewed, c.Renewals.Load())
		o.ObserveInt64(rebuilt, c.Rebuilds.Load())
		return nil
	}, observed...)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return m, nil
}

// stop ends the reading of the counts.
func (m *meters) stop() { _ = m.reading.Unregister() }

// received makes the span of one receive that brought messages.
func (m *meters) received(ctx context.Context, began time.Time, n int) {
	_, span := m.tracer.Start(ctx, "receive "+m.queue.Value.AsString(), trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began),
		trace.WithAttributes(semconv.MessagingSystemServiceBus, semconv.MessagingOperationTypeReceive, semconv.MessagingOperationName("receive"),
			m.queue, semconv.MessagingBatchMessageCount(n)))
	span.End()
}

// process begins the span of a message. It is linked to the producer's: who sent a backlog at night is not the parent of
// each of its messages.
func (m *meters) process(ctx context.Context, d *delivery) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		semconv.MessagingSystemServiceBus, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process"), m.queue,
		semconv.MessagingMessageID(d.ID), semconv.MessagingMessageConversationID(d.CorrelationID),
		semconv.MessagingServiceBusMessageDeliveryCount(d.Delivery))}
	if producer := Producer(d.Message); producer.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: producer}))
	}
	return m.tracer.Start(ctx, "process "+m.queue.Value.AsString(), options...)
}

// settle begins the span of a settlement.
func (m *meters) settle(ctx context.Context, s Settlement) trace.Span {
	_, span := m.tracer.Start(ctx, "settle "+m.queue.Value.AsString(), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.MessagingSystemServiceBus, semconv.MessagingOperationTypeSettle, semconv.MessagingOperationName(string(s)), m.queue,
		semconv.MessagingServiceBusDispositionStatusKey.String(disposition(s))))
	return span
}

// disposition is the convention's word for a settlement.
func disposition(s Settlement) string {
	if s == DeadLetter {
		return "dead_letter"
	}
	return string(s)
}

// finish ends a message's span and records its time.
func (m *meters) finish(ctx context.Context, span trace.Span, v Verdict, settleErr error, took time.Duration) {
	attributes := []attribute.KeyValue{semconv.MessagingSystemServiceBus, semconv.MessagingOperationName("process"), m.queue}
	span.SetAttributes(attribute.String("millrace.verdict", v.Kind.String()), attribute.String("millrace.outcome", v.Outcome),
		attribute.String("millrace.reason", v.Reason))
	if v.settlement() == Abandon || settleErr != nil {
		class := v.Kind.String()
		if settleErr != nil {
			class = "unsettled"
		}
		span.SetStatus(codes.Error, class)
		span.SetAttributes(semconv.ErrorTypeKey.String(class))
		attributes = append(attributes, semconv.ErrorTypeKey.String(class))
	}
	m.duration.Record(ctx, took.Seconds(), metric.WithAttributes(attributes...))
	span.End()
}

// Producer is the trace context that the sender of m put into its properties: traceparent, else Diagnostic-Id, which older
// senders of Service Bus write in the same form (W3C Trace Context). It is not valid if there is none.
func Producer(m *Message) trace.SpanContext {
	for _, name := range []string{"traceparent", "Diagnostic-Id"} {
		header, _ := m.Properties[name].(string)
		carrier := propagation.MapCarrier{"traceparent": header}
		if state, ok := m.Properties["tracestate"].(string); ok {
			carrier["tracestate"] = state
		}
		if c := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier)); c.IsValid() {
			return c
		}
	}
	return trace.SpanContext{}
}
