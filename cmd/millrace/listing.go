package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"millrace/claimcheck"
)

// readAtOnce is how many results are read ahead of what is shown.
const readAtOnce = 64

// found is a result and the name it is stored under.
type found struct {
	name    string
	created time.Time // when the blob was last written
	result  *claimcheck.Result
}

// archive reads the results container of a fleet.
type archive struct {
	store     *claimcheck.Store
	container *container.Client
	url       string
	transport *http.Transport
}

// openArchive sends nothing. close it.
func openArchive(c *client) (*archive, error) {
	url, err := c.resultsURL()
	if err != nil {
		return nil, err
	}
	ref, err := containerOf(url)
	if err != nil {
		return nil, setupError{fmt.Errorf("MILLRACE_RESULTS: %s", detail(err))}
	}
	store, err := c.store(url, lookups)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	account, err := c.storage(ref.Account, transport)
	if err != nil {
		return nil, setupError{fmt.Errorf("MILLRACE_RESULTS: %w", err)}
	}
	return &archive{store: store, container: account.NewContainerClient(ref.Container), url: url, transport: transport}, nil
}

func (a *archive) close() { a.transport.CloseIdleConnections() }

func (a *archive) advice(err error) error {
	return blobAdvice(err, a.url, "MILLRACE_RESULTS", roleReader)
}

// filter says which results are meant. The zero filter means all.
type filter struct {
	outcomes map[string]bool // empty: any
	reasons  map[string]bool // empty: any
	since    time.Time       // zero: any
}

func (f filter) passes(r *claimcheck.Result) bool {
	return (len(f.outcomes) == 0 || f.outcomes[string(r.Outcome)]) && (len(f.reasons) == 0 || f.reasons[string(r.Reason)])
}

// errEnough ends a listing early.
var errEnough = errors.New("enough")

// list tells show of every result whose name starts with prefix and that f lets pass, in the order of the names. Listings
// come in pages, and results are read while earlier ones are shown. skipped counts blobs that are no results.
func (a *archive) list(ctx context.Context, prefix string, f filter, show func(found) error) (skipped int, err error) {
	pager := a.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix})
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return skipped, a.advice(err)
		}
		var candidates []found
		for _, item := range page.Segment.BlobItems {
			if item.Name == nil || item.Properties == nil || item.Properties.LastModified == nil {
				continue
			}
			if c := (found{name: *item.Name, created: *item.Properties.LastModified}); !c.created.Before(f.since) {
				candidates = append(candidates, c)
			}
		}
		for part := range slices.Chunk(candidates, readAtOnce) {
			if err := a.read(ctx, part); err != nil {
				return skipped, err
			}
			for _, c := range part {
				switch {
				case c.result == nil: // it was deleted meanwhile
				case c.result.Outcome == "":
					skipped++
				case f.passes(c.result):
					if err := show(c); err != nil {
						return skipped, err
					}
				}
			}
		}
	}
	return skipped, nil
}

// read fills in the results.
func (a *archive) read(ctx context.Context, part []found) error {
	errs := make([]error, len(part))
	each(lookups, len(part), func(i int) {
		r, ok, err := a.store.Lookup(ctx, part[i].name)
		if errs[i] = err; ok {
			part[i].result = r
		}
	})
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return a.advice(errs[i])
	}
	return nil
}

// of returns the results under a correlation id, the latest first.
func (a *archive) of(ctx context.Context, tenant, correlation string) ([]found, error) {
	var all []found
	if _, err := a.list(ctx, tenant+"/"+correlation+"/", filter{}, func(f found) error {
		all = append(all, f)
		return nil
	}); err != nil {
		return nil, err
	}
	slices.SortFunc(all, latestFirst)
	return all, nil
}

func latestFirst(a, b found) int {
	return cmp.Or(b.result.CreatedAt.Compare(a.result.CreatedAt), strings.Compare(a.name, b.name))
}

// instant reads a point in time: RFC 3339, a date, or how long before now.
func instant(flag, value string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(value); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, value); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usageError{fmt.Errorf("--%s %q: use a duration such as 90m or a time such as 2026-12-01 or 2026-12-01T12:00:00Z", flag, value)}
}
