package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"millrace/claimcheck"
	"millrace/internal/catalog"
	"millrace/internal/model"
	"millrace/quota"
	"millrace/worker/infer"
)

// parts are what outlives a catalog: connections, and limiters with the memory of what was spent. They are used by one
// goroutine at a time.
type parts struct {
	cfg         Config
	results     string
	open        claimcheck.Open
	stores      map[int64]*claimcheck.Store // by document limit
	deployments map[string]*deployment      // by address
}

// deployment is one model deployment, whatever catalogs call it.
type deployment struct {
	made    catalog.Deployment // what client was made for
	client  *model.Client
	limiter *quota.Limiter
	share   *share
}

func newParts(cfg Config) (*parts, error) {
	results, open, err := cfg.storage()
	if err != nil {
		return nil, err
	}
	return &parts{cfg: cfg, results: results, open: open,
		stores: make(map[int64]*claimcheck.Store), deployments: make(map[string]*deployment)}, nil
}

// close ends idle connections to the model.
func (p *parts) close() {
	for _, d := range p.deployments {
		d.client.Close()
	}
}

// under returns what a handler needs to work under c. Nothing that runs is disturbed, and after an error nothing has
// changed.
func (p *parts) under(c *catalog.Catalog) (infer.Config, error) {
	if err := p.cfg.checkShares(c); err != nil {
		return infer.Config{}, err
	}
	policy := claimcheck.Policy{Containers: c.Containers(), Results: p.results, AllowLoopbackHTTP: c.Policy.AllowLoopbackHTTP}
	if err := policy.Validate(); err != nil {
		return infer.Config{}, fmt.Errorf("MILLRACE_RESULTS and the containers of catalog %s: %w", p.cfg.Catalog, err)
	}
	store, err := p.store(c.Policy.MaxDocumentBytes)
	if err != nil {
		return infer.Config{}, fmt.Errorf("MILLRACE_RESULTS: %w", err)
	}
	clients := make(map[string]*model.Client) // made first, so that an error leaves no limit changed
	for name, d := range c.Deployments {
		known, ok := p.deployments[address(d)]
		if ok && sameClient(known.made, *d) {
			continue
		}
		client, err := model.New(modelDeployment(d, p.cfg.Credential), &model.Options{Transport: p.cfg.Transport, Connections: p.cfg.Slots})
		if err != nil {
			return infer.Config{}, fmt.Errorf("catalog %s: deployment %s: %w", p.cfg.Catalog, name, err)
		}
		clients[name] = client
	}
	used := make(map[string]*infer.Deployment, len(c.Deployments))
	for name, d := range c.Deployments {
		known := p.adjust(d, clients[name], c.Weights())
		used[name] = &infer.Deployment{Deployment: d, Client: known.client, Limiter: known.limiter}
	}
	return infer.Config{Catalog: c, Policy: policy, Store: store, Deployments: used}, nil
}

func (p *parts) store(limit int64) (*claimcheck.Store, error) {
	if s, ok := p.stores[limit]; ok {
		return s, nil
	}
	s, err := claimcheck.NewStore(p.results, p.open, &claimcheck.StoreOptions{
		MaxDocument: limit, Transport: p.cfg.Transport, Connections: p.cfg.Slots,
	})
	if err == nil {
		p.stores[limit] = s
	}
	return s, err
}

// adjust brings the deployment that d describes to what d says. Its limiter stays, since a new one would not know what
// was spent in the last minute.
func (p *parts) adjust(d *catalog.Deployment, client *model.Client, weights map[string]float64) *deployment {
	tokens, rpm := p.cfg.share(d), float64(d.RPM)/float64(p.cfg.MaxReplicas)
	known, ok := p.deployments[address(d)]
	if !ok {
		known = &deployment{share: &share{}}
		known.share.tokens.Store(int64(tokens))
		known.limiter = quota.New(known.share, &quota.Options{RPM: rpm, Weights: weights})
		p.deployments[address(d)] = known
	} else {
		known.share.tokens.Store(int64(tokens))
		known.limiter.SetRPM(rpm)
		known.limiter.SetWeights(weights)
		known.limiter.Refresh()
	}
	if client != nil {
		if known.client != nil {
			known.client.Close()
		}
		known.client, known.made = client, *d
	}
	return known
}

func address(d *catalog.Deployment) string { return d.Endpoint + " " + d.Deployment }

// sameClient reports whether a client made for a can serve b.
func sameClient(a, b catalog.Deployment) bool {
	return a.APIVersion == b.APIVersion && a.APIKeyEnv == b.APIKeyEnv && a.APIKeyFile == b.APIKeyFile && a.TPM == b.TPM
}

func modelDeployment(d *catalog.Deployment, credential azcore.TokenCredential) model.Deployment {
	m := model.Deployment{Endpoint: d.Endpoint, Name: d.Deployment, APIVersion: d.APIVersion, TPM: d.TPM}
	if d.HasKey() {
		m.Key = d.Key
	} else {
		m.Credential = credential
	}
	return m
}

// share is an equal part of a deployment's limit for each replica: until replicas share one limit, the sum stays within
// it whatever they do. It implements [quota.Share].
type share struct{ tokens atomic.Int64 }

// Cap returns the part; it holds until it is changed.
func (s *share) Cap(t time.Time) (int, time.Time) { return int(s.tokens.Load()), t.Add(24 * time.Hour) }

// share is how many tokens per minute this process may spend on d.
func (c Config) share(d *catalog.Deployment) int { return d.Budget() / c.MaxReplicas }

// checkShares refuses shares in which not even an empty document fits: every document would be recorded as too large for
// good, or wait for ever where the share is nothing at all.
func (c Config) checkShares(known *catalog.Catalog) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(known.Aliases)) {
		a := known.Aliases[name]
		for _, d := range a.Deployments {
			if least := a.Estimate(1); least > c.share(d) {
				errs = append(errs, fmt.Errorf("MILLRACE_MAX_REPLICAS: alias %s needs %d tokens for the shortest document, and of deployment %s each of %d processes has %d a minute; "+
					"lower it, or max_completion_tokens in the catalog", name, least, d.Name, c.MaxReplicas, c.share(d)))
			}
		}
	}
	return errors.Join(errs...)
}
