package infer

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"millrace/claimcheck"
	"millrace/internal/catalog"
	"millrace/worker"
)

// Config is what messages are answered under.
type Config struct {
	Catalog *catalog.Catalog
	Policy  claimcheck.Policy
	Store   *claimcheck.Store
	// Deployments holds every deployment that the catalog's aliases name, by its name in the catalog.
	Deployments map[string]*Deployment
}

// Options are the handler's telemetry. Nil means none.
type Options struct {
	// Meter makes the metrics. Default: none are made.
	Meter metric.Meter
	// Tracer makes a span for each call of a model. Default: none are made.
	Tracer trace.Tracer
}

// Handler answers claim checks. Make it with [New].
type Handler struct {
	current   atomic.Pointer[snapshot]
	unwritten unwritten
	meters    *meters
}

// snapshot is one Config in the form in which a message needs it. A message is answered under one snapshot from its
// first step to its last, whatever is put in its place meanwhile.
type snapshot struct {
	policy    claimcheck.Policy
	store     *claimcheck.Store
	aliases   map[string]*alias
	results   string // the dependency that results are written to
	unwritten *unwritten
	meters    *meters
}

// New returns a handler that works under cfg.
func New(cfg Config, opts *Options) (*Handler, error) {
	m, err := newMeters(opts)
	if err != nil {
		return nil, err
	}
	h := &Handler{meters: m}
	if err := h.Use(cfg); err != nil {
		return nil, err
	}
	return h, nil
}

// Use puts cfg in the place of what the handler worked under. Messages in hand end under what they began with. After an
// error nothing has changed.
func (h *Handler) Use(cfg Config) error {
	s := &snapshot{
		policy: cfg.Policy, store: cfg.Store, aliases: make(map[string]*alias, len(cfg.Catalog.Aliases)),
		unwritten: &h.unwritten, meters: h.meters,
	}
	if ref, err := claimcheck.ParseReference(strings.TrimSuffix(cfg.Policy.Results, "/") + "/any"); err == nil {
		s.results = "results:" + ref.AccountName()
	}
	for name, named := range cfg.Catalog.Aliases {
		a := &alias{Alias: named}
		for _, d := range named.Deployments {
			known, ok := cfg.Deployments[d.Name]
			if !ok {
				return fmt.Errorf("alias %s: deployment %s is not given", name, d.Name)
			}
			a.deployments = append(a.deployments, known)
		}
		s.aliases[name] = a
	}
	h.current.Store(s)
	return nil
}

// Handle takes one message from claim to result. It is a [worker.Handler].
func (h *Handler) Handle(ctx context.Context, m *worker.Message) worker.Verdict {
	return h.current.Load().answer(ctx, m)
}
