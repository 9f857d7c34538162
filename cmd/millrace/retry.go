package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/claimcheck"
)

type retryFlags struct {
	filterFlags
	waitFlags
	newRun, queue      string
	dryRun, wait, json bool
}

func resultsRetryCommand() *cobra.Command {
	var f retryFlags
	cmd := &cobra.Command{
		Use:   "retry",
		Short: "Send the claims of failed and refused results again, under a new run",
		Long: `Sends a claim for every result that the filter lets pass, with the same tenant, model, blob, correlation id and attributes
and under a new run, so that it is new work with a result of its own; the old one stays. Of several results for the same
document, model and correlation id only the latest counts. Without --outcome it means refused and failed, which is
rejected, unreadable, expired and superseded.

The claim pins the blob as it is now; one that is gone is named and left out. The run follows from the old result unless
--run names one: the same retry twice is the same work, paid once. --dry-run prints the claims and sends nothing.

Environment and exit codes are those of "millrace submit"; MILLRACE_RESULTS is needed.`,
		Example: `  millrace results retry --tenant fernhill --since 24h --reason prompt_filter --dry-run
  millrace results retry --tenant fernhill --since 24h --reason prompt_filter --wait`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), newLineScreen(cmd, f.json), os.LookupEnv)
		},
	}
	f.filterFlags.add(cmd)
	f.waitFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.newRun, "run", "", "name of the new run (default: one that follows from the old result)")
	flags.StringVar(&f.queue, "queue", "", "name of the queue (default: MILLRACE_QUEUE)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the claims and send nothing")
	flags.BoolVar(&f.wait, "wait", false, "wait for the results")
	flags.BoolVar(&f.json, "json", false, "print a JSON object for each claim instead of text")
	return cmd
}

func (f *retryFlags) run(ctx context.Context, s *screen, lookup func(string) (string, bool)) error {
	if len(f.outcomes) == 0 {
		f.outcomes = []string{"refused", "failed"}
	}
	pick, prefix, err := f.read(time.Now())
	if err != nil {
		return err
	}
	if f.dryRun && f.wait {
		return usageError{errors.New("--dry-run and --wait: choose one of them")}
	}
	submit := submitFlags{queue: f.queue, waitFlags: f.waitFlags, wait: f.wait}
	unwanted, err := outcomesOf("fail-on", f.failOn)
	if err != nil {
		return err
	}
	c, err := openClient(lookup)
	if err != nil {
		return err
	}
	a, err := openArchive(c)
	if err != nil {
		return err
	}
	defer a.close()
	old, err := a.toRetry(ctx, prefix, pick)
	if err != nil {
		return err
	}
	orders, gone, err := c.again(ctx, old, f.newRun)
	if err != nil {
		return err
	}
	(&shipment{left: gone}).tell(s)
	switch {
	case len(orders) == 0 && len(gone) == 0:
		s.note("nothing to retry in %s/%s", a.url, prefix)
		return nil
	case len(orders) == 0:
		return fmt.Errorf("nothing was sent: %d documents are gone", len(gone))
	case f.dryRun:
		err = printOrders(orders, s)
	default:
		err = submit.deliver(ctx, c, orders, unwanted, s)
	}
	if err == nil && len(gone) > 0 {
		err = fmt.Errorf("%d documents are gone and were left out", len(gone))
	}
	return err
}

// toRetry are the latest results of their document, model and correlation id, as far as the filter lets them pass.
func (a *archive) toRetry(ctx context.Context, prefix string, pick filter) ([]found, error) {
	type work struct{ correlation, model, blob string }
	newest := make(map[work]found)
	if _, err := a.list(ctx, prefix, filter{}, func(f found) error {
		r := f.result
		r.Text = "" // it may be long and nobody asks for it
		key := work{r.CorrelationID, r.Model, r.Input.URL}
		if known, ok := newest[key]; !ok || latestFirst(f, known) < 0 {
			newest[key] = f
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var old []found
	for _, f := range newest {
		if !f.created.Before(pick.since) && pick.passes(f.result) {
			old = append(old, f)
		}
	}
	slices.SortFunc(old, func(x, y found) int { return strings.Compare(x.name, y.name) })
	return old, nil
}

// again makes an order of each result, pinned to the blob as it is now. Those whose blob is gone are left out.
func (c *client) again(ctx context.Context, old []found, run string) (orders []order, gone []leftOut, err error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: lookups, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	made := make([]order, len(old))
	errs := make([]error, len(old))
	each(lookups, len(old), func(i int) { made[i], errs[i] = c.orderAgain(ctx, old[i].result, run, transport) })
	for i, err := range errs {
		switch {
		case err == nil:
			orders = append(orders, made[i])
		case errors.Is(err, errGone):
			gone = append(gone, leftOut{old[i].name, err.Error()})
		default:
			return nil, nil, fmt.Errorf("%s: %w", shown(old[i].name), err)
		}
	}
	return orders, gone, nil
}

// errGone is a document that cannot be worked on again.
var errGone = errors.New("the document is gone")

func (c *client) orderAgain(ctx context.Context, r *claimcheck.Result, run string, transport *http.Transport) (order, error) {
	if run == "" {
		run = "retry-" + r.WorkID[:12]
	}
	if r.CorrelationID == "" {
		return order{}, fmt.Errorf("%w: the claim came from an event and has no correlation id", errGone)
	}
	ref, err := claimcheck.ParseReference(r.Input.URL)
	if err != nil {
		return order{}, errors.New(detail(err))
	}
	claim := claimcheck.Claim{
		Tenant: r.Tenant, Model: r.Model, Blob: r.Input.URL, CorrelationID: r.CorrelationID, Run: run, Attributes: r.Attributes,
	}
	etag, err := c.etag(ctx, ref, transport)
	if err != nil {
		return order{}, err
	}
	if ref.VersionID == "" && ref.Snapshot == "" {
		claim.ETag = etag
	}
	if name, err := claim.ResultName(); err != nil {
		return order{}, setupError{errors.New(detail(err))}
	} else if strings.HasSuffix(name, "/"+r.WorkID+".json") {
		return order{}, usageError{fmt.Errorf("--run %s: is the run of the old result; name a new one", run)}
	}
	if err := errors.Join(c.checkTenant(claim.Tenant), c.checkModel(claim.Model)); err != nil {
		return order{}, setupError{err}
	}
	if policy := c.policy(); policy != nil {
		if _, err := policy.Check(claim); err != nil {
			return order{}, setupError{errors.New(detail(err))}
		}
	}
	return order{label: ref.Blob, claim: claim, ref: ref}, nil
}

// printOrders prints what would be sent.
func printOrders(orders []order, s *screen) error {
	for _, o := range orders {
		p, err := parcelOf(o.label, o.claim)
		if err != nil {
			return err
		}
		if err := printReceipt(s, p.receipt); err != nil {
			return err
		}
	}
	s.note("%d claims would be sent", len(orders))
	return nil
}
