package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"millrace/claimcheck"
	"millrace/cmd/worker/app"
	"millrace/internal/catalog"
)

// setupError is a mistake in the environment or the catalog.
type setupError struct{ error }

func (e setupError) Unwrap() error { return e.error }

// client is what the commands know of the fleet they talk to. Nothing is sent before it is used.
type client struct {
	cfg     app.Config
	catalog *catalog.Catalog // nil if MILLRACE_CATALOG is not set
	open    claimcheck.Open
	account string // URL of the connection string's storage account, "" without one
	results string // URL of the results container, "" if MILLRACE_RESULTS is not set
}

// openClient reads the environment and the catalog that it names.
func openClient(lookup func(string) (string, bool)) (*client, error) {
	cfg, err := app.ClientFromEnv(lookup)
	if err != nil {
		return nil, setupError{err}
	}
	c := &client{cfg: cfg}
	if c.account, c.open, err = cfg.OpenStorage(); err != nil {
		return nil, setupError{err}
	}
	if cfg.Results != "" {
		if c.results, err = c.containerURL("MILLRACE_RESULTS", cfg.Results); err != nil {
			return nil, setupError{err}
		}
	}
	if cfg.Catalog != "" {
		if c.catalog, err = loadCatalog(cfg.Catalog); err != nil {
			return nil, setupError{catalogAdvice("MILLRACE_CATALOG", err)}
		}
	}
	return c, nil
}

// catalogAdvice is the first of a catalog's problems and how to see the others.
func catalogAdvice(setting string, err error) error {
	first, _, more := strings.Cut(err.Error(), "\n")
	if !more {
		return fmt.Errorf("%s: %s", setting, first)
	}
	return fmt.Errorf("%s: %s (and %d more: see \"millrace catalog check\")", setting, first, strings.Count(err.Error(), "\n"))
}

// containerURL returns the canonical URL of a container that is given by its URL or its name.
func (c *client) containerURL(setting, given string) (string, error) {
	full, ok := app.ContainerURL(c.account, given)
	if !ok {
		return "", fmt.Errorf("%s: %q is no URL; a container's name alone needs AZURE_STORAGE_CONNECTION_STRING", setting, given)
	}
	ref, err := containerOf(full)
	if err != nil {
		return "", fmt.Errorf("%s: %s", setting, detail(err))
	}
	return ref.ContainerURL(), nil
}

// containerOf reads the URL of a container; the reference is without a blob.
func containerOf(url string) (claimcheck.Reference, error) {
	ref, err := claimcheck.ParseReference(strings.TrimSuffix(url, "/") + "/x")
	if err == nil && ref.Blob != "x" {
		err = errors.New("the URL must end in a container name")
	}
	ref.Blob = ""
	return ref, err
}

// resultsURL is the results container, which must be set.
func (c *client) resultsURL() (string, error) {
	if c.results == "" {
		return "", setupError{errors.New("MILLRACE_RESULTS: is not set; it is the URL of the container for results, or its name in the account of AZURE_STORAGE_CONNECTION_STRING")}
	}
	return c.results, nil
}

// store opens storage with results as the results container.
func (c *client) store(results string, connections int) (*claimcheck.Store, error) {
	s, err := claimcheck.NewStore(results, c.open, &claimcheck.StoreOptions{Connections: connections, MaxDocument: maxFile})
	if err != nil {
		return nil, setupError{fmt.Errorf("MILLRACE_RESULTS: %w", err)}
	}
	return s, nil
}

// storage opens the account of a reference, for what a Store does not do.
func (c *client) storage(account string, transport *http.Transport) (*service.Client, error) {
	var options service.ClientOptions
	options.Retry.MaxRetries = 2
	options.Retry.RetryDelay = 200 * time.Millisecond
	options.Transport = &http.Client{Transport: transport}
	return c.open(account, &options)
}

// queue is the name of the queue: the flag's, else the environment's.
func (c *client) queue(flag string) (string, error) {
	queue := flag
	if queue == "" {
		queue = c.cfg.Queue
	}
	if queue == "" {
		return "", setupError{errors.New("MILLRACE_QUEUE: is not set; it is the name of the queue with the claim checks, or use --queue")}
	}
	return queue, nil
}

// busRetries is how often an operation of a command is tried again before the command fails.
const busRetries = 3

// bus opens the broker. close it with closeBus.
func (c *client) bus() (*azservicebus.Client, error) {
	bus, err := c.cfg.OpenBus(busRetries)
	if err != nil {
		return nil, setupError{err}
	}
	return bus, nil
}

// closeBus closes the broker's client within a bound; what it held is closed by the broker in any case.
func closeBus(ctx context.Context, bus *azservicebus.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = bus.Close(ctx)
}

// policy is what workers check references by; nil without a catalog.
func (c *client) policy() *claimcheck.Policy {
	if c.catalog == nil {
		return nil
	}
	return &claimcheck.Policy{Containers: c.catalog.Containers(), Results: c.results, AllowLoopbackHTTP: c.catalog.Policy.AllowLoopbackHTTP}
}

// checkTenant reports whether the catalog has the tenant; without a catalog any may be.
func (c *client) checkTenant(tenant string) error {
	if c.catalog == nil || c.catalog.Tenants[tenant] != nil {
		return nil
	}
	return fmt.Errorf("tenant %q is not in the catalog; it has %s", tenant, names(c.catalog.Tenants))
}

// checkModel reports whether the catalog has the alias; without a catalog any may be.
func (c *client) checkModel(model string) error {
	if c.catalog == nil || c.catalog.Aliases[model] != nil {
		return nil
	}
	return fmt.Errorf("model %q is no alias of the catalog; it has %s", model, names(c.catalog.Aliases))
}

// names lists the keys of m for a sentence.
func names[T any](m map[string]T) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// detail is the sentence of a poison error without its reason code, and any other error as it is.
func detail(err error) string {
	var poison *claimcheck.PoisonError
	if !errors.As(err, &poison) {
		return err.Error()
	}
	if poison.Field == "" {
		return poison.Detail
	}
	return poison.Field + ": " + poison.Detail
}
