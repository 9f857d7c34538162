package infer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"millrace/claimcheck"
	"millrace/internal/model"
)

// meters are the metrics and spans of this room. Tenants are not among the attributes: their number is not bounded.
type meters struct {
	tracer   trace.Tracer
	outcomes metric.Int64Counter
	stages   metric.Float64Histogram
	tokens   metric.Int64Histogram
	calls    metric.Float64Histogram
	labels   map[string]metric.MeasurementOption // of the stages, made once
}

func newMeters(opts *Options) (*meters, error) {
	m := &meters{tracer: nooptrace.NewTracerProvider().Tracer(""), labels: make(map[string]metric.MeasurementOption)}
	for _, stage := range []string{"queue", "fetch", "wait", "call", "write"} {
		m.labels[stage] = metric.WithAttributeSet(attribute.NewSet(attribute.String("stage", stage)))
	}
	var own metric.Meter = noopmetric.NewMeterProvider().Meter("")
	if opts != nil && opts.Meter != nil {
		own = opts.Meter
	}
	if opts != nil && opts.Tracer != nil {
		m.tracer = opts.Tracer
	}
	var errs [4]error
	m.outcomes, errs[0] = own.Int64Counter("millrace.outcomes",
		metric.WithUnit("{result}"), metric.WithDescription("Results written, by alias, outcome and reason."))
	// Seconds from milliseconds in storage to an hour on the queue.
	m.stages, errs[1] = own.Float64Histogram("millrace.stage.duration", metric.WithUnit("s"),
		metric.WithDescription("Time of a message in each stage: queue, fetch, wait (for quota), call, write."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 900, 3600))
	m.tokens, errs[2] = own.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens of a call, by type."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	m.calls, errs[3] = own.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Time of a call of a model."),
		metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return m, nil
}

// stage records the time of one stage.
func (m *meters) stage(ctx context.Context, name string, took time.Duration) {
	m.stages.Record(ctx, took.Seconds(), m.labels[name])
}

// recorded counts a result.
func (m *meters) recorded(ctx context.Context, r claimcheck.Result) {
	m.outcomes.Add(ctx, 1, metric.WithAttributes(
		attribute.String("alias", r.Model), attribute.String("outcome", string(r.Outcome)), attribute.String("reason", string(r.Reason))))
}

// call makes one call of a model, with its span and its metrics.
func (m *meters) call(ctx context.Context, d *Deployment, r model.Request) (*model.Answer, error) {
	common := slices.Clip([]attribute.KeyValue{
		semconv.GenAIOperationNameChat, semconv.GenAIProviderNameAzureAIOpenAI, semconv.GenAIRequestModel(d.Deployment.Deployment),
	})
	ctx, span := m.tracer.Start(ctx, "chat "+d.Deployment.Deployment, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(append(common, semconv.GenAIRequestMaxTokens(r.MaxCompletionTokens))...))
	defer span.End()
	began := time.Now()
	answer, err := d.Client.Complete(ctx, r)
	took := time.Since(began).Seconds()
	if err != nil {
		class := "_OTHER"
		var failure *model.Error
		if errors.As(err, &failure) {
			class = string(failure.Kind)
		}
		span.SetStatus(codes.Error, class)
		span.SetAttributes(semconv.ErrorTypeKey.String(class))
		m.calls.Record(ctx, took, metric.WithAttributes(append(common, semconv.ErrorTypeKey.String(class))...))
		return nil, err
	}
	span.SetAttributes(semconv.GenAIResponseModel(answer.Model), semconv.GenAIResponseID(answer.ResponseID),
		semconv.GenAIResponseFinishReasons(answer.FinishReason), semconv.GenAIUsageInputTokens(answer.Usage.Input),
		semconv.GenAIUsageOutputTokens(answer.Usage.Output), attribute.String("millrace.answer", string(answer.Kind)))
	common = slices.Clip(append(common, semconv.GenAIResponseModel(answer.Model)))
	m.calls.Record(ctx, took, metric.WithAttributes(common...))
	if answer.Usage.Reported {
		m.tokens.Record(ctx, int64(answer.Usage.Input), metric.WithAttributes(append(common, semconv.GenAITokenTypeInput)...))
		m.tokens.Record(ctx, int64(answer.Usage.Output), metric.WithAttributes(append(common, semconv.GenAITokenTypeOutput)...))
	}
	return answer, nil
}
