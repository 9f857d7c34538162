package claimcheck

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Policy says which references may be followed. The zero Policy allows none.
type Policy struct {
	// Containers lists for each tenant the URLs of the containers that its documents may be in. A tenant without an entry
	// is unknown.
	Containers map[string][]string
	// Results is the URL of the results container. A reference into it is refused even if a tenant lists it, since a result
	// that is read as a document would be work without end.
	Results string
	// AllowLoopbackHTTP allows http to this machine, for an emulator. Default: false.
	AllowLoopbackHTTP bool
}

// Validate reports every mistake in p at once: tenants and URLs that are none, an http URL that is not allowed, and a
// results container that is also an input.
func (p Policy) Validate() error {
	var problems []error
	results := ""
	if p.Results != "" {
		ref, err := p.container(p.Results)
		if err != nil {
			problems = append(problems, fmt.Errorf("results container: %s", err.Detail))
		}
		results = ref.ContainerURL()
	}
	for _, tenant := range slices.Sorted(maps.Keys(p.Containers)) {
		if !isTenant(tenant) {
			problems = append(problems, fmt.Errorf("tenant %q: use 1 to 63 lower-case letters, digits and hyphens, starting with a letter or digit", tenant))
		}
		for i, raw := range p.Containers[tenant] {
			ref, err := p.container(raw)
			switch {
			case err != nil:
				problems = append(problems, fmt.Errorf("tenant %q: container %d: %s", tenant, i+1, err.Detail))
			case ref.ContainerURL() == results:
				problems = append(problems, fmt.Errorf("tenant %q: container %d is the results container: every result would be new work", tenant, i+1))
			}
		}
	}
	return errors.Join(problems...)
}

// Check returns the reference of c if it may be followed: its container is one of the tenant's, and its blob name starts
// with the tenant's name and a slash. It sends nothing. The error is a *PoisonError with ReasonUnknownTenant,
// ReasonForbiddenReference or ReasonInvalidName.
func (p Policy) Check(c Claim) (Reference, error) {
	ref, err := p.check(c)
	if err != nil {
		return Reference{}, err
	}
	return ref, nil
}

func (p Policy) check(c Claim) (Reference, *PoisonError) {
	containers, ok := p.Containers[c.Tenant]
	if !ok || !isTenant(c.Tenant) {
		return Reference{}, poison(ReasonUnknownTenant, "tenant", "the catalog has no such tenant")
	}
	ref, err := parseReference(c.Blob)
	if err != nil {
		return Reference{}, err
	}
	if strings.HasPrefix(ref.Account, "http:") && !p.AllowLoopbackHTTP {
		return Reference{}, forbidden("use https")
	}
	if p.OwnOutput(ref) {
		return Reference{}, forbidden("the blob is in the results container")
	}
	listed := slices.ContainsFunc(containers, func(raw string) bool {
		allowed, err := p.container(raw)
		return err == nil && allowed.Account == ref.Account && allowed.Container == ref.Container
	})
	if !listed {
		return Reference{}, forbidden("the container is not listed for this tenant")
	}
	if !strings.HasPrefix(ref.Blob, c.Tenant+"/") {
		return Reference{}, forbidden("the blob name must start with the tenant's name and a slash")
	}
	return ref, nil
}

// OwnOutput reports whether ref points into the results container. A storage event about such a blob is skipped with
// ReasonOwnOutput.
func (p Policy) OwnOutput(ref Reference) bool {
	results, err := p.container(p.Results)
	return err == nil && results.Account == ref.Account && results.Container == ref.Container
}

// container reads a container URL of the policy. One that is wrong matches nothing.
func (p Policy) container(raw string) (Reference, *PoisonError) {
	ref, err := parseContainer(raw)
	if err != nil {
		return Reference{}, err
	}
	if strings.HasPrefix(ref.Account, "http:") && !p.AllowLoopbackHTTP {
		return Reference{}, forbidden("use https")
	}
	return ref, nil
}
