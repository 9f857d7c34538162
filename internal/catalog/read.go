package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// reader turns the tree into a catalog.
type reader struct {
	tree
	files fs.FS
	read  map[string][]byte

	policy      Policy
	deployments map[string]*Deployment
	taken       map[string]string // endpoint and name of a deployment → its entry
}

var (
	tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	otherName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9_-])?$`)
	azureName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	apiVersion = regexp.MustCompile(`^(v1|20[0-9]{2}-[0-9]{2}-[0-9]{2}(-preview)?)$`)
	envName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	currency   = regexp.MustCompile(`^[A-Z]{3}$`)

	// keyShape matches what keys of Azure services look like: 32 hexadecimal digits, or 84 letters and digits.
	keyShape = regexp.MustCompile(`^([0-9a-fA-F]{32}|[A-Za-z0-9]{84})$`)
)

func (r *reader) catalog(root node) *Catalog {
	o := r.object(root, root, []string{"version", "tenants", "deployments", "aliases", "policy"}, []string{"version", "tenants", "deployments", "aliases"})
	if v, ok := r.text(o.fields["version"]); ok && v != Version {
		r.report(o.fields["version"], "is %q, but this program reads %q", v, Version)
	}
	// The policy decides what the rest may say, and aliases refer to deployments; problems are sorted by place afterwards.
	r.readPolicy(o.fields["policy"])
	c := &Catalog{Policy: r.policy}
	c.Tenants = named(r, o.fields["tenants"], tenantName, "a-z, 0-9 and -, beginning with a letter or digit, at most 63", r.tenant)
	c.Deployments = named(r, o.fields["deployments"], otherName, "a-z, 0-9, dot, _ and -, beginning with a letter or digit, not ending in a dot, at most 63", r.deployment)
	r.deployments = c.Deployments
	c.Aliases = named(r, o.fields["aliases"], otherName, "a-z, 0-9, dot, _ and -, beginning with a letter or digit, not ending in a dot, at most 63", r.alias)
	return c
}

// named reads a mapping from names to things.
func named[T any](r *reader, n node, pattern *regexp.Regexp, rule string, read func(name string, m member) *T) map[string]*T {
	things := make(map[string]*T)
	members := r.members(n)
	if len(members) == 0 && n.ast != nil && kind(n.ast) == "a mapping" {
		r.report(n, "must name at least one")
	}
	for _, m := range members {
		if !pattern.MatchString(m.name) {
			r.report(m.key, "is not a name: allowed are %s", rule)
		}
		things[m.name] = read(m.name, m)
	}
	return things
}

func (r *reader) readPolicy(n node) {
	r.policy = Policy{MaxDocumentBytes: 1 << 20}
	o := r.object(n, n, []string{"max_document_bytes", "allow_loopback_http"}, nil)
	if v, ok := r.integer(o.fields["max_document_bytes"], 1, 1<<30); ok {
		r.policy.MaxDocumentBytes = v
	}
	r.policy.AllowLoopbackHTTP, _ = r.boolean(o.fields["allow_loopback_http"])
}

func (r *reader) tenant(name string, m member) *Tenant {
	t := &Tenant{Name: name, Weight: 1}
	o := r.object(m.value, m.key, []string{"team", "weight", "containers"}, []string{"containers"})
	t.Team, _ = r.word(o.fields["team"])
	if v, ok := r.number(o.fields["weight"], 0.001, 1000); ok {
		t.Weight = v
	}
	seen := map[string]bool{}
	for _, item := range r.list(o.fields["containers"]) {
		u, ok := r.container(item)
		if ok && seen[u] {
			r.report(item, "is there twice")
			continue
		}
		if ok {
			seen[u] = true
			t.Containers = append(t.Containers, u)
		}
	}
	return t
}

func (r *reader) deployment(name string, m member) *Deployment {
	d := &Deployment{Name: name, APIVersion: "v1"}
	o := r.object(m.value, m.key,
		[]string{"endpoint", "deployment", "api_version", "tpm", "rpm", "reserved_tpm", "context_window", "api_key_env", "api_key_file", "price"},
		[]string{"endpoint", "deployment", "tpm"})
	d.Endpoint, _ = r.endpoint(o.fields["endpoint"])
	if v, ok := r.word(o.fields["deployment"]); ok {
		if !azureName.MatchString(v) {
			r.report(o.fields["deployment"], "is not a deployment's name: allowed are letters, digits, dot, _ and -, at most 64")
		}
		d.Deployment = v
	}
	if v, ok := r.word(o.fields["api_version"]); ok {
		if !apiVersion.MatchString(v) {
			r.report(o.fields["api_version"], `must be "v1" or a dated version such as 2024-10-21`)
		}
		d.APIVersion = v
	}
	if v, ok := r.integer(o.fields["tpm"], 1, math.MaxInt32); ok {
		d.TPM = int(v)
	}
	if v, ok := r.integer(o.fields["rpm"], 0, math.MaxInt32); ok {
		d.RPM = int(v)
	}
	if v, ok := r.integer(o.fields["reserved_tpm"], 0, math.MaxInt32); ok {
		d.ReservedTPM = int(v)
		if d.TPM > 0 && d.ReservedTPM >= d.TPM {
			r.report(o.fields["reserved_tpm"], "is %d, which leaves nothing of the %d in tpm: it must be less", d.ReservedTPM, d.TPM)
		}
	}
	if v, ok := r.integer(o.fields["context_window"], 1, math.MaxInt32); ok {
		d.ContextWindow = int(v)
	}
	r.key(d, o)
	d.Price = r.price(o.fields["price"])
	r.alone(d, m.key)
	return d
}

// key reads where a deployment's key is. A key that was written in place of its name is not repeated in the problem.
func (r *reader) key(d *Deployment, o object) {
	env, file := o.fields["api_key_env"], o.fields["api_key_file"]
	if env.ast != nil && file.ast != nil {
		r.report(file, "api_key_env is there too: keep one of them")
	}
	if v, ok := r.word(env); ok {
		switch {
		case keyShape.MatchString(v):
			r.report(env, "looks like a key, not like the name of an environment variable: write the name, and replace the key that was written here")
		case !envName.MatchString(v):
			r.report(env, "must be the name of an environment variable: letters, digits and _, not beginning with a digit")
		default:
			d.APIKeyEnv = v
		}
	}
	if v, ok := r.word(file); ok {
		switch {
		case keyShape.MatchString(v):
			r.report(file, "looks like a key, not like a path: write the path, and replace the key that was written here")
		case !filepath.IsAbs(v):
			r.report(file, "must be an absolute path, such as that of a mounted secret")
		default:
			d.APIKeyFile = v
		}
	}
}

// alone refuses a second entry for one deployment: each would get a limiter of its own, and together they would spend the limit twice.
func (r *reader) alone(d *Deployment, at node) {
	if d.Endpoint == "" || d.Deployment == "" {
		return
	}
	id := strings.ToLower(d.Endpoint + "/" + d.Deployment)
	if other, ok := r.taken[id]; ok {
		r.report(at, "is the same deployment at the same endpoint as %s, and its limit would be spent twice: let aliases share one entry", other)
		return
	}
	r.taken[id] = d.Name
}

func (r *reader) price(n node) *Price {
	if n.ast == nil {
		return nil
	}
	p := &Price{}
	o := r.object(n, n, []string{"rule", "currency", "input", "cached", "output"}, []string{"rule", "currency", "input", "output"})
	p.Rule, _ = r.word(o.fields["rule"])
	if v, ok := r.word(o.fields["currency"]); ok {
		if !currency.MatchString(v) {
			r.report(o.fields["currency"], "must be an ISO 4217 code of three capitals, such as USD")
		}
		p.Currency = v
	}
	p.Input, _ = r.number(o.fields["input"], 0, 1e6)
	p.Output, _ = r.number(o.fields["output"], 0, 1e6)
	p.Cached = p.Input
	if v, ok := r.number(o.fields["cached"], 0, 1e6); ok {
		p.Cached = v
	}
	return p
}

func (r *reader) alias(name string, m member) *Alias {
	a := &Alias{Name: name, Kind: "chat"}
	o := r.object(m.value, m.key,
		[]string{"kind", "deployments", "prompt_file", "prompt_version", "parameters", "output_schema_file"},
		[]string{"kind", "deployments", "prompt_file", "prompt_version", "parameters"})
	if v, ok := r.text(o.fields["kind"]); ok && v != "chat" {
		r.report(o.fields["kind"], `must be "chat"`)
	}
	r.prompt(a, o.fields["prompt_file"])
	a.PromptVersion, _ = r.word(o.fields["prompt_version"])
	if n := o.fields["output_schema_file"]; n.ast != nil {
		if raw, ok := r.file(n); ok {
			s, err := compile(name, raw)
			if err != nil {
				r.report(n, "schema %s", err)
			}
			a.Schema = s
		}
	}
	capAt := r.parameters(a, o.fields["parameters"])
	for _, item := range r.list(o.fields["deployments"]) {
		r.choose(a, item, capAt)
	}
	return a
}

func (r *reader) prompt(a *Alias, n node) {
	data, ok := r.file(n)
	if !ok {
		return
	}
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		r.report(n, "the prompt begins with a byte order mark, which would be sent to the model: save it without")
	case !utf8.Valid(data) || bytes.ContainsRune(data, 0):
		r.report(n, "the prompt is not UTF-8 text")
	case len(bytes.TrimSpace(data)) == 0:
		r.report(n, "the prompt is empty")
	}
	sum := sha256.Sum256(data)
	a.Prompt, a.PromptHash = string(data), hex.EncodeToString(sum[:])
}

// parameters returns where the output cap is set.
func (r *reader) parameters(a *Alias, n node) node {
	o := r.object(n, n, []string{"max_completion_tokens", "temperature", "top_p", "seed", "stop"}, []string{"max_completion_tokens"})
	p := &a.Parameters
	limit := o.fields["max_completion_tokens"]
	if v, ok := r.integer(limit, 1, math.MaxInt32); ok {
		p.MaxCompletionTokens = int(v)
	}
	if v, ok := r.number(o.fields["temperature"], 0, 2); ok {
		p.Temperature = &v
	}
	if v, ok := r.number(o.fields["top_p"], 0, 1); ok {
		p.TopP = &v
	}
	if v, ok := r.integer(o.fields["seed"], math.MinInt64, math.MaxInt64); ok {
		p.Seed = &v
	}
	items := r.list(o.fields["stop"])
	if len(items) > 4 {
		r.report(o.fields["stop"], "has %d sequences, but the model API takes at most 4", len(items))
	}
	for _, item := range items {
		v, ok := r.text(item)
		if ok && v == "" {
			r.report(item, "must not be empty")
		}
		p.Stop = append(p.Stop, v)
	}
	return limit
}

// choose adds a deployment to an alias if even an empty document can be sent to it.
func (r *reader) choose(a *Alias, item, capAt node) {
	name, ok := r.word(item)
	if !ok {
		return
	}
	d, ok := r.deployments[name]
	if !ok {
		r.report(item, "%q is not among the deployments", name)
		return
	}
	for _, other := range a.Deployments {
		if other == d {
			r.report(item, "%q is there twice", name)
			return
		}
	}
	a.Deployments = append(a.Deployments, d)
	least := a.Estimate(0)
	if a.Parameters.MaxCompletionTokens == 0 || d.TPM == 0 || d.Budget() <= 0 {
		return // reported already
	}
	if least > d.Budget() {
		r.report(capAt, "with the prompt, even an empty document counts %d tokens, but deployment %s has %d a minute: lower it, or leave that deployment out", least, name, d.Budget())
	}
	if d.ContextWindow > 0 && least > d.ContextWindow {
		r.report(capAt, "with the prompt, even an empty document needs %d tokens, but the context window of deployment %s is %d: lower it, or leave that deployment out", least, name, d.ContextWindow)
	}
}
