package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/claimcheck"
)

// longestPrefix leaves room for the longest correlation id of a file.
const longestPrefix = claimcheck.MaxCorrelationID - longestSlug - 9

var prefixPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

type submitFlags struct {
	jsonl, tenant, model, newRun, container, queue, prefix string
	waitFlags
	wait, json bool
}

// waitFlags are those of every command that waits for results.
type waitFlags struct {
	timeout time.Duration
	failOn  []string
}

func (f *waitFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.timeout, "timeout", time.Hour, "how long to wait for results; 0 for as long as it takes")
	cmd.Flags().StringSliceVar(&f.failOn, "fail-on", nil, "outcomes that make the exit code 1, such as failed,refused")
}

const submitLong = `Uploads documents to Blob storage and sends a claim check for each, as an upload pipeline does. A folder stands for every
file below it and every link to one, but nothing hidden and no folder behind a link. Standard output has a line for each
claim that was sent, its correlation id and the name of its result; with --wait each line comes when the claim has ended,
with its outcome in between.

Environment: SERVICEBUS_CONNECTION_STRING or SERVICEBUS_FULLY_QUALIFIED_NAMESPACE, MILLRACE_QUEUE, and for storage
AZURE_STORAGE_CONNECTION_STRING or an identity (az login). With MILLRACE_CATALOG tenant, model and container are checked
before anything is sent, and the container is the tenant's first unless --container says otherwise. --wait needs
MILLRACE_RESULTS. An identity needs the roles Azure Service Bus Data Sender (with --wait Receiver too, to notice dead
letters) and Storage Blob Data Contributor on the container.

A document becomes the blob {tenant}/{model}/{name}, and its claim pins the ETag. Sending it again replaces the blob and is
new work; a claim for the replaced one that no worker has begun ends as superseded.

A line of --jsonl is a whole claim, sent as it is, or an object with file (a path from here) or blob (a URL), and, where
the flags do not say it, tenant, model, correlation_id, run, deadline and attributes. The ETag of a blob is looked up
unless the line has it. Everything is checked first: with a mistake in one line nothing is sent.

The exit code is 0 if everything was sent, and with --wait has a result; 1 if something failed, a file of a folder was
left out, a claim was dead-lettered or has no result in time, or one ended as --fail-on says; and 2 for a mistake in the
call, the environment, the catalog or a line.`

func submitCommand() *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit [FILE|FOLDER]...",
		Short: "Upload documents and send their claim checks",
		Long:  submitLong,
		Example: `  millrace submit --tenant fernhill --model ticket-summary ./tickets --wait
  millrace submit --jsonl claims.jsonl --wait --timeout 30m --fail-on failed,refused --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args, cmd.InOrStdin(), newLineScreen(cmd, f.json), os.LookupEnv)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.jsonl, "jsonl", "", "file of JSON lines with claims; - for standard input")
	flags.StringVar(&f.tenant, "tenant", "", "tenant that the documents belong to")
	flags.StringVar(&f.model, "model", "", "alias of the catalog that they are for")
	flags.StringVar(&f.newRun, "run", "", "name of a run, to make new work of what was done before")
	flags.StringVar(&f.container, "container", "", "container for the documents: its URL, or its name in the account of the connection string")
	flags.StringVar(&f.queue, "queue", "", "name of the queue (default: MILLRACE_QUEUE)")
	flags.StringVar(&f.prefix, "correlation-prefix", "", "put in front of the correlation ids made from the documents' names")
	flags.BoolVar(&f.wait, "wait", false, "wait for the results")
	f.add(cmd)
	flags.BoolVar(&f.json, "json", false, "print a JSON object for each claim instead of text")
	completeNames(cmd)
	return cmd
}

// check refuses what cannot be meant.
func (f *submitFlags) check(args []string) error {
	switch {
	case len(args) == 0 && f.jsonl == "":
		return usageError{errors.New("nothing to submit: name files or folders, or --jsonl FILE")}
	case len(f.prefix) > longestPrefix || f.prefix != "" && !prefixPattern.MatchString(f.prefix):
		return usageError{fmt.Errorf("--correlation-prefix %q: use at most %d letters, digits, '.', '_' and '-', starting with a letter or digit", f.prefix, longestPrefix)}
	case f.timeout < 0:
		return usageError{fmt.Errorf("--timeout %s: is negative", f.timeout)}
	case len(f.failOn) > 0 && !f.wait:
		return usageError{errors.New("--fail-on is for --wait")}
	}
	return nil
}

func (f *submitFlags) run(ctx context.Context, args []string, stdin io.Reader, s *screen, lookup func(string) (string, bool)) error {
	if err := f.check(args); err != nil {
		return err
	}
	unwanted, err := outcomesOf("fail-on", f.failOn)
	if err != nil {
		return err
	}
	c, err := openClient(lookup)
	if err != nil {
		return err
	}
	if err := f.reachable(c); err != nil {
		return err
	}
	if f.wait {
		if _, err := c.resultsURL(); err != nil {
			return err
		}
	}
	book, err := f.book(c, args, stdin)
	if err != nil {
		return err
	}
	(&shipment{renamed: book.renamed, left: book.left}).tell(s)
	if len(book.orders) == 0 {
		return errors.New("nothing was sent: no file could be taken")
	}
	if err := f.deliver(ctx, c, book.orders, unwanted, s); err != nil {
		return err
	}
	if len(book.left) > 0 {
		return fmt.Errorf("%d files could not be taken and were left out", len(book.left))
	}
	return nil
}

// reachable reports what is missing in the environment to send anything.
func (f *submitFlags) reachable(c *client) error {
	if _, err := c.queue(f.queue); err != nil {
		return err
	}
	_, err := c.bus() // which sends nothing
	return err
}

// deliver sends the orders and, if that was asked for, waits for the results.
func (f *submitFlags) deliver(ctx context.Context, c *client, orders []order, unwanted map[string]bool, s *screen) error {
	queue, err := c.queue(f.queue)
	if err != nil {
		return err
	}
	bus, err := c.bus()
	if err != nil {
		return err
	}
	defer closeBus(ctx, bus)
	p, err := openProducer(ctx, c, bus, queue, orders[0].container())
	if err != nil {
		return err
	}
	if f.wait {
		if _, _, err := p.store.Lookup(ctx, "probe"); err != nil { // before anything is sent
			return setupError{blobAdvice(err, c.results, "MILLRACE_RESULTS", roleReader)}
		}
	}
	receipts, err := f.send(ctx, p, orders, s)
	if err != nil {
		return err
	}
	if f.wait {
		dead, err := openDeadLetters(bus, queue, s)
		if err != nil {
			return err
		}
		return f.await(ctx, &waiter{store: p.store, client: c, dead: dead, screen: s}, receipts, unwanted)
	}
	return nil
}

// book is everything that was asked for, checked.
func (f *submitFlags) book(c *client, args []string, stdin io.Reader) (*orderBook, error) {
	b := &orderBook{
		client: c, prefix: f.prefix, taken: make(map[string]string),
		defaults: claimcheck.Claim{Tenant: f.tenant, Model: f.model, Run: f.newRun},
		place:    func(tenant string) (claimcheck.Reference, error) { return f.place(c, tenant) },
	}
	if len(args) > 0 {
		if f.tenant == "" {
			return nil, usageError{errors.New("--tenant is missing: name the tenant that the documents belong to")}
		}
		if f.model == "" {
			return nil, usageError{errors.New("--model is missing: name the alias of the catalog that they are for")}
		}
	}
	if f.tenant != "" {
		if err := c.checkTenant(f.tenant); err != nil {
			return nil, setupError{err}
		}
	}
	if f.model != "" {
		if err := c.checkModel(f.model); err != nil {
			return nil, setupError{err}
		}
	}
	b.addPaths(args)
	switch f.jsonl {
	case "":
	case "-":
		b.addLines(stdin, "standard input")
	default:
		file, err := os.Open(f.jsonl)
		if err != nil {
			return nil, setupError{fmt.Errorf("--jsonl %s: cannot be read: %s", shown(f.jsonl), reason(err))}
		}
		defer file.Close()
		b.addLines(file, shown(f.jsonl))
	}
	if err := b.err(); err != nil {
		return nil, setupError{err}
	}
	return b, nil
}

// place is the container that a tenant's documents go to.
func (f *submitFlags) place(c *client, tenant string) (claimcheck.Reference, error) {
	if f.container != "" {
		url, err := c.containerURL("--container", f.container)
		if err != nil {
			return claimcheck.Reference{}, err
		}
		if c.catalog != nil && !slices.Contains(c.catalog.Tenants[tenant].Containers, url) {
			return claimcheck.Reference{}, fmt.Errorf("--container %s: is not among the containers of tenant %s in the catalog: %s",
				shown(f.container), tenant, strings.Join(c.catalog.Tenants[tenant].Containers, ", "))
		}
		return containerOf(url)
	}
	if c.catalog == nil {
		return claimcheck.Reference{}, errors.New("--container is missing: name the container for the documents, or set MILLRACE_CATALOG, whose tenants have one")
	}
	return containerOf(c.catalog.Tenants[tenant].Containers[0])
}

// container is where the document of an order is, or will be.
func (o order) container() string {
	ref := o.ref
	if ref.Container == "" {
		ref, _ = claimcheck.ParseReference(o.claim.Blob) // it was checked
	}
	return ref.ContainerURL()
}

// send sends every order and prints the claims unless their endings will be.
func (f *submitFlags) send(ctx context.Context, p *producer, orders []order, s *screen) ([]receipt, error) {
	began := time.Now()
	receipts := make([]receipt, 0, len(orders))
	err := p.send(ctx, orders, func(r receipt) error {
		receipts = append(receipts, r)
		now := time.Now()
		s.show(fmt.Sprintf("%5.1f s  %d of %d sent", now.Sub(began).Seconds(), len(receipts), len(orders)), "", now, len(receipts) == len(orders))
		if f.wait {
			return nil
		}
		return printReceipt(s, r)
	})
	switch {
	case err == nil:
		return receipts, nil
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	return nil, fmt.Errorf("%w; %d of %d claims were sent", err, len(receipts), len(orders))
}

func printReceipt(s *screen, r receipt) error {
	if s.json {
		return encode(s.out, r)
	}
	return s.say("%s\t%s", r.CorrelationID, r.Result)
}

// await waits for the results of what was sent and says what came of it.
func (f *waitFlags) await(ctx context.Context, w *waiter, receipts []receipt, unwanted map[string]bool) error {
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	w.told = func(e ending) error { return printEnding(w.screen, e) }
	if err := w.wait(ctx, receipts); err != nil {
		return err
	}
	w.screen.note("%s", w.summary())
	return w.verdict(unwanted)
}

func printEnding(s *screen, e ending) error {
	if s.json {
		return encode(s.out, e)
	}
	word := e.word()
	if e.Reason != "" {
		word += " " + e.Reason
	}
	return s.say("%s\t%s\t%s", e.CorrelationID, word, e.Result)
}
