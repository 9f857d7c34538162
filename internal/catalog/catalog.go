// Package catalog turns catalog.yaml into one immutable snapshot of who may ask, which models answer, and under which limits.
//
// A catalog is read whole or not at all: [Load] reports every problem at once, each with its place and what to do about it, and a
// snapshot that was returned never changes, so one message is worked on under one catalog even while the file is being replaced. A key
// that nothing enforces is refused rather than ignored. Secrets are never part of it; a deployment names where its key is.
package catalog

import (
	"encoding/json"
	"math"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Version is the version of the catalog format that this package reads.
const Version = "1"

// Catalog is one snapshot. It is shared by whoever works under it: nobody changes it.
type Catalog struct {
	// Tenants, Deployments and Aliases are keyed by name.
	Tenants     map[string]*Tenant
	Deployments map[string]*Deployment
	Aliases     map[string]*Alias
	Policy      Policy
	// Hash is the SHA-256, in hexadecimal, of the catalog file and of every file it names. Two snapshots with equal hashes are equal.
	Hash string
}

// Tenant is somebody who may send work.
type Tenant struct {
	Name string
	// Team is who answers for the tenant in usage reports; it may be empty.
	Team string
	// Weight is the tenant's share of a deployment's quota while tenants compete, 0.001…1000. Default: 1.
	Weight float64
	// Containers are the URLs of the containers that the tenant's claims may point into, without a trailing slash.
	Containers []string
}

// Deployment is one model deployment and the limits under which it is called.
type Deployment struct {
	Name string
	// Endpoint is the resource's URL, without a trailing slash; Deployment its name there; APIVersion is "v1" or a dated version.
	Endpoint, Deployment, APIVersion string
	// TPM is the whole limit in tokens per minute, and ReservedTPM the part of it that is left to other consumers.
	TPM, ReservedTPM int
	// RPM is the limit in requests per minute; zero is none.
	RPM int
	// ContextWindow is how many tokens prompt and answer may have together; zero is unknown.
	ContextWindow int
	// APIKeyEnv or APIKeyFile says where the key is. Both are empty for Entra ID.
	APIKeyEnv, APIKeyFile string
	// Price is nil if the catalog names none.
	Price *Price
}

// Budget returns how many tokens per minute this deployment leaves to the fleet.
func (d *Deployment) Budget() int { return d.TPM - d.ReservedTPM }

// Price is what a deployment's tokens cost.
type Price struct {
	// Rule names the price list, so that a figure can be explained later; Currency is an ISO 4217 code.
	Rule, Currency string
	// Input, Cached and Output are amounts for a million tokens.
	Input, Cached, Output float64
}

// Usage is what a call used, as the service reports it: Cached is a part of Input, and reasoning tokens are a part of Output.
type Usage struct {
	Input, Cached, Output int
}

// Cost is an amount and where it comes from.
type Cost struct {
	Amount         float64
	Currency, Rule string
}

// Cost returns what a call cost, rounded to 10^-12 of the currency. It is false if the deployment has no price.
func (d *Deployment) Cost(u Usage) (Cost, bool) {
	if d.Price == nil {
		return Cost{}, false
	}
	p := d.Price
	cached := min(max(u.Cached, 0), max(u.Input, 0))
	fresh := max(u.Input, 0) - cached
	millionths := float64(fresh)*p.Input + float64(cached)*p.Cached + float64(max(u.Output, 0))*p.Output
	return Cost{Amount: math.Round(millionths*1e6) / 1e12, Currency: p.Currency, Rule: p.Rule}, true
}

// Alias is what a claim names as its model: a task, its prompt and the deployments that can do it.
type Alias struct {
	Name string
	// Kind is the shape of the call. It is "chat".
	Kind string
	// Deployments are tried in this order.
	Deployments []*Deployment
	// Prompt is the system message, verbatim. PromptHash is its SHA-256 in hexadecimal, PromptVersion the author's name for it.
	Prompt, PromptVersion, PromptHash string
	Parameters                        Parameters
	// Schema is what the answer has to match; nil if anything will do.
	Schema *Schema
}

// Estimate returns what the service is expected to count for a document of so many characters: a quarter of all characters, and the
// output cap.
func (a *Alias) Estimate(characters int) int {
	prompt := utf8.RuneCountInString(a.Prompt) + max(characters, 0)
	return (prompt+3)/4 + a.Parameters.MaxCompletionTokens
}

// Parameters are sent with every call of an alias. A nil pointer or slice leaves the service's default.
type Parameters struct {
	MaxCompletionTokens int
	Temperature, TopP   *float64
	Seed                *int64
	Stop                []string
}

// Schema is a JSON Schema for answers.
type Schema struct {
	// Name is the alias's name in the alphabet that the model API allows.
	Name string
	// Raw is the schema as in its file.
	Raw      json.RawMessage
	compiled *jsonschema.Schema
}

// Policy holds what is true for every tenant.
type Policy struct {
	// MaxDocumentBytes is the size above which a document is not fetched. Default: 1 MiB.
	MaxDocumentBytes int64
	// AllowLoopbackHTTP lets endpoints and containers be http on this machine, for emulators. Default: false.
	AllowLoopbackHTTP bool
}

// Weights returns the weight of every tenant.
func (c *Catalog) Weights() map[string]float64 {
	weights := make(map[string]float64, len(c.Tenants))
	for name, t := range c.Tenants {
		weights[name] = t.Weight
	}
	return weights
}

// Containers returns the containers of every tenant.
func (c *Catalog) Containers() map[string][]string {
	containers := make(map[string][]string, len(c.Tenants))
	for name, t := range c.Tenants {
		containers[name] = append([]string(nil), t.Containers...)
	}
	return containers
}
