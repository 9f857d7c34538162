package infer

import (
	"context"
	"errors"
	"net/http"
	"time"

	"millrace/claimcheck"
	"millrace/internal/model"
	"millrace/worker"
)

// answer takes one message from claim to result under one snapshot.
func (s *snapshot) answer(ctx context.Context, m *worker.Message) worker.Verdict {
	claim, err := claimcheck.Decode(m.Body)
	if err != nil {
		return verdictOf(ctx, err)
	}
	ref, err := s.policy.Check(claim)
	if err != nil {
		return verdictOf(ctx, err)
	}
	alias, known := s.aliases[claim.Model]
	if !known {
		return worker.Reject(string(claimcheck.ReasonUnknownAlias), "model: the catalog has no alias of this name")
	}
	job, err := newJob(ctx, claim, ref, m)
	if err != nil {
		return verdictOf(ctx, err)
	}

	done, found, err := s.store.Lookup(ctx, job.name)
	if err != nil {
		return verdictOf(ctx, err)
	}
	if found {
		return recorded(done)
	}
	if result, ok := s.unwritten.take(job.name); ok {
		return s.write(ctx, job.name, result)
	}
	if job.expired(time.Now()) {
		return s.record(ctx, job, expired())
	}

	began := time.Now()
	doc, err := s.store.Fetch(ctx, ref, claim.ETag)
	job.spent("fetch", began)
	if err != nil {
		return s.fail(ctx, job, err)
	}
	job.read(doc)

	answer, err := s.ask(ctx, m, job, alias, doc.Text)
	if err == nil && empty(answer) {
		answer, err = s.ask(ctx, m, job, alias, doc.Text) // no text is worth one more call, not more
	}
	if err != nil {
		return s.fail(ctx, job, err)
	}
	return s.record(ctx, job, alias.judge(answer))
}

// ask makes one call within quota. Every way out ends the reservation, by what the service will have counted.
func (s *snapshot) ask(ctx context.Context, m *worker.Message, job *job, alias *alias, text string) (*model.Answer, error) {
	request := alias.request(text)
	began := time.Now()
	deployment, reservation, err := alias.reserve(ctx, job, request.Estimate())
	job.spent("wait", began)
	if err != nil {
		return nil, err
	}
	if !m.Start() {
		reservation.Cancel()
		return nil, worker.ErrDraining
	}

	request.Sent = reservation.Sent
	began = time.Now()
	answer, err := s.meters.call(ctx, deployment, request)
	job.spent("call", began)
	var failure *model.Error
	switch {
	case err == nil:
		reservation.Settle()
		job.served(deployment, answer)
	case errors.As(err, &failure) && (failure.Kind == model.Throttled || failure.Status == http.StatusTooManyRequests):
		reservation.Cancel() // a refused request is not in the service's window
		if failure.Kind == model.Throttled {
			deployment.Limiter.Pause(failure.RetryAfter)
		}
	case errors.As(err, &failure) && !failure.Sent:
		reservation.Cancel()
	default:
		reservation.Settle() // it may have been counted
	}
	return answer, err
}

// fail records what is wrong with the document, and returns the verdict of anything else.
func (s *snapshot) fail(ctx context.Context, job *job, err error) worker.Verdict {
	if finding, final := findingOf(err); final {
		return s.record(ctx, job, finding)
	}
	return verdictOf(ctx, err)
}

// record writes what the work came to.
func (s *snapshot) record(ctx context.Context, job *job, f finding) worker.Verdict {
	for stage, took := range job.stages {
		s.meters.stage(ctx, stage, took)
	}
	return s.write(ctx, job.name, job.result(f, time.Now()))
}

// write writes the result before anything is said about the message. Whoever wrote first has answered. Once there is
// something to say it is said: the end of ctx does not throw away what may have been paid for, and since nothing is ever
// overwritten, a write after a lost lock does no harm.
func (s *snapshot) write(ctx context.Context, name string, result claimcheck.Result) worker.Verdict {
	writing, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), writeFor,
		&claimcheck.DependencyError{Dependency: s.results, Err: errSlowWrite})
	defer cancel()
	began := time.Now()
	created, err := s.store.Create(writing, name, result)
	s.meters.stage(ctx, "write", time.Since(began))
	if err != nil {
		if paid := result.Deployment != ""; paid && ctx.Err() == nil {
			s.unwritten.keep(name, result)
		}
		return verdictOf(ctx, err)
	}
	if created {
		s.meters.recorded(ctx, result)
	}
	return recorded(&result)
}

// writeFor bounds the writing of a result, the store's retries included.
const writeFor = 15 * time.Second

var errSlowWrite = errors.New("the result was not written in time")
