package infer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"millrace/claimcheck"
	"millrace/internal/catalog"
	"millrace/internal/model"
	"millrace/worker"
)

// Handler answers claim checks under one catalog. Make it with [New].
type Handler struct {
	policy    claimcheck.Policy
	store     *claimcheck.Store
	aliases   map[string]*alias
	results   string // the dependency that results are written to
	unwritten unwritten
}

// New returns a handler for the aliases of c. deployments holds every deployment that the aliases name, by its name in
// the catalog.
func New(c *catalog.Catalog, policy claimcheck.Policy, store *claimcheck.Store, deployments map[string]*Deployment) (*Handler, error) {
	h := &Handler{policy: policy, store: store, aliases: make(map[string]*alias, len(c.Aliases))}
	if ref, err := claimcheck.ParseReference(strings.TrimSuffix(policy.Results, "/") + "/any"); err == nil {
		h.results = "results:" + ref.AccountName()
	}
	for name, named := range c.Aliases {
		a := &alias{Alias: named}
		for _, d := range named.Deployments {
			known, ok := deployments[d.Name]
			if !ok {
				return nil, fmt.Errorf("alias %s: deployment %s is not given", name, d.Name)
			}
			a.deployments = append(a.deployments, known)
		}
		h.aliases[name] = a
	}
	return h, nil
}

// Handle takes one message from claim to result. It is a [worker.Handler].
func (h *Handler) Handle(ctx context.Context, m *worker.Message) worker.Verdict {
	claim, err := claimcheck.Decode(m.Body)
	if err != nil {
		return verdictOf(ctx, err)
	}
	ref, err := h.policy.Check(claim)
	if err != nil {
		return verdictOf(ctx, err)
	}
	alias, known := h.aliases[claim.Model]
	if !known {
		return worker.Reject(string(claimcheck.ReasonUnknownAlias), "model: the catalog has no alias of this name")
	}
	job, err := newJob(claim, ref, m)
	if err != nil {
		return verdictOf(ctx, err)
	}

	done, found, err := h.store.Lookup(ctx, job.name)
	if err != nil {
		return verdictOf(ctx, err)
	}
	if found {
		return recorded(done)
	}
	if result, ok := h.unwritten.take(job.name); ok {
		return h.write(ctx, job.name, result)
	}
	if job.expired(time.Now()) {
		return h.record(ctx, job, expired())
	}

	began := time.Now()
	doc, err := h.store.Fetch(ctx, ref, claim.ETag)
	job.spent("fetch", began)
	if err != nil {
		return h.fail(ctx, job, err)
	}
	job.read(doc)

	answer, err := h.ask(ctx, m, job, alias, doc.Text)
	if err == nil && empty(answer) {
		answer, err = h.ask(ctx, m, job, alias, doc.Text) // no text is worth one more call, not more
	}
	if err != nil {
		return h.fail(ctx, job, err)
	}
	return h.record(ctx, job, alias.judge(answer))
}

// ask makes one call within quota. Every way out ends the reservation, by what the service will have counted.
func (h *Handler) ask(ctx context.Context, m *worker.Message, job *job, alias *alias, text string) (*model.Answer, error) {
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
	answer, err := deployment.Client.Complete(ctx, request)
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
func (h *Handler) fail(ctx context.Context, job *job, err error) worker.Verdict {
	if finding, final := findingOf(err); final {
		return h.record(ctx, job, finding)
	}
	return verdictOf(ctx, err)
}

// record writes what the work came to.
func (h *Handler) record(ctx context.Context, job *job, f finding) worker.Verdict {
	return h.write(ctx, job.name, job.result(f, time.Now()))
}

// write writes the result before anything is said about the message. Whoever wrote first has answered. Once there is
// something to say it is said: the end of ctx does not throw away what may have been paid for, and since nothing is ever
// overwritten, a write after a lost lock does no harm.
func (h *Handler) write(ctx context.Context, name string, result claimcheck.Result) worker.Verdict {
	writing, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), writeFor,
		&claimcheck.DependencyError{Dependency: h.results, Err: errSlowWrite})
	defer cancel()
	if _, err := h.store.Create(writing, name, result); err != nil {
		if paid := result.Deployment != ""; paid && ctx.Err() == nil {
			h.unwritten.keep(name, result)
		}
		return verdictOf(ctx, err)
	}
	return recorded(&result)
}

// writeFor bounds the writing of a result, the store's retries included.
const writeFor = 15 * time.Second

var errSlowWrite = errors.New("the result was not written in time")
