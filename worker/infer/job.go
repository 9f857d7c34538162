package infer

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"millrace/claimcheck"
	"millrace/internal/catalog"
	"millrace/internal/model"
	"millrace/worker"
)

// job is what is known so far about one piece of work; in the end its result is made of it.
type job struct {
	name     string // of the result
	deadline time.Time
	stages   map[string]time.Duration
	draft    claimcheck.Result
}

func newJob(ctx context.Context, claim claimcheck.Claim, ref claimcheck.Reference, m *worker.Message) (*job, error) {
	workID, err := claim.WorkID()
	if err != nil {
		return nil, err
	}
	name, err := claimcheck.ResultName(claim.Tenant, claim.CorrelationID, workID)
	if err != nil {
		return nil, err
	}
	return &job{name: name, deadline: claim.Deadline, stages: queued(m), draft: claimcheck.Result{
		Tenant: claim.Tenant, Model: claim.Model, CorrelationID: claim.CorrelationID, WorkID: workID, Run: claim.Run,
		Attributes: claim.Attributes, DeliveryCount: m.Delivery, TraceID: traceID(ctx, m),
		Input: claimcheck.InputUsed{URL: ref.String()},
	}}, nil
}

// queued is the time a message spent on the queue. The broker's clock is not ours, so a negative one counts as none.
func queued(m *worker.Message) map[string]time.Duration {
	stages := make(map[string]time.Duration)
	if !m.Enqueued.IsZero() {
		stages["queue"] = max(0, time.Since(m.Enqueued))
	}
	return stages
}

// expired reports whether nobody waits for the answer any more.
func (j *job) expired(t time.Time) bool { return !j.deadline.IsZero() && t.After(j.deadline) }

// spent adds the time since began to a stage.
func (j *job) spent(stage string, began time.Time) {
	j.stages[stage] += time.Since(began)
}

func (j *job) read(doc *claimcheck.Document) {
	j.draft.Input.ETag, j.draft.Input.SHA256, j.draft.Input.Bytes = doc.ETag, doc.SHA256, doc.Size
}

// served notes who answered and adds what it used: a second call after an empty answer is paid for too.
func (j *job) served(d *Deployment, a *model.Answer) {
	j.draft.Deployment, j.draft.ModelVersion, j.draft.Fingerprint = d.Name, a.Model, a.Fingerprint
	u := &j.draft.Usage
	u.Input += a.Usage.Input
	u.Cached += a.Usage.Cached
	u.Output += a.Usage.Output
	u.Reasoning += a.Usage.Reasoning
	// Both calls went to deployments of one alias; where their prices differ, the last one's prices all of it.
	if cost, ok := d.Cost(catalog.Usage{Input: u.Input, Cached: u.Cached, Output: u.Output}); ok {
		j.draft.Cost = claimcheck.CostOfUsage{Amount: cost.Amount, Currency: cost.Currency, Rule: cost.Rule}
	}
}

func (j *job) result(f finding, t time.Time) claimcheck.Result {
	r := j.draft
	r.Outcome, r.Reason, r.Detail, r.Text, r.Prompt = f.outcome, f.reason, claimcheck.ShortDetail(f.detail), f.text, f.prompt
	r.TimingsMS = make(map[string]int64, len(j.stages))
	for stage, took := range j.stages {
		r.TimingsMS[stage] = took.Milliseconds()
	}
	r.CreatedAt = t.UTC()
	return r
}

// traceID is the trace that the result belongs to: the producer's, else this process's own, else "".
func traceID(ctx context.Context, m *worker.Message) string {
	for _, c := range []trace.SpanContext{worker.Producer(m), trace.SpanContextFromContext(ctx)} {
		if c.HasTraceID() {
			return c.TraceID().String()
		}
	}
	return ""
}
