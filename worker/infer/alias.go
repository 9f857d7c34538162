package infer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/catalog"
	"millrace/internal/model"
	"millrace/quota"
)

// Deployment is one model deployment of the catalog as this process uses it.
type Deployment struct {
	*catalog.Deployment
	// Client calls it.
	Client *model.Client
	// Limiter holds what this process may spend on it.
	Limiter *quota.Limiter
}

var errDeadline = errors.New("the claim's deadline passed")

// alias is a model alias with the deployments behind it, in order of preference.
type alias struct {
	*catalog.Alias
	deployments []*Deployment
}

func (a *alias) request(text string) model.Request {
	p := a.Parameters
	r := model.Request{
		System: a.Prompt, Document: text, MaxCompletionTokens: p.MaxCompletionTokens,
		Temperature: p.Temperature, TopP: p.TopP, Seed: p.Seed, Stop: p.Stop,
	}
	if a.Schema != nil {
		r.Schema = &model.Schema{Name: a.Schema.Name, Raw: a.Schema.Raw}
	}
	return r
}

// reserve finds room for a request: at the first deployment that has some now, else by waiting for the most preferred
// one. It waits no longer than the claim's deadline, and finds nothing after it.
func (a *alias) reserve(ctx context.Context, j *job, tokens int) (*Deployment, *quota.Reservation, error) {
	if j.expired(time.Now()) {
		return nil, nil, errDeadline
	}
	for _, d := range a.deployments {
		if r, ok := d.Limiter.TryReserve(j.draft.Tenant, tokens); ok {
			return d, r, nil
		}
	}
	if !j.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, j.deadline, errDeadline)
		defer cancel()
	}
	var tooLarge error
	for _, d := range a.deployments {
		r, err := d.Limiter.Reserve(ctx, j.draft.Tenant, tokens)
		var e *quota.TooLargeError
		if !errors.As(err, &e) {
			return d, r, err
		}
		tooLarge = fmt.Errorf("deployment %s: %w", d.Name, e)
	}
	return nil, nil, tooLarge
}
