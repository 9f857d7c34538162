package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"time"

	"github.com/spf13/cobra"
)

type devFlags struct {
	docs, out, tenant, model string
	tpm, workers             int
	json, verbose            bool
}

const devLong = `Runs the whole job on this machine: a Service Bus queue, a blob store and a model as emulators on loopback ports, a
fleet of the real workers, and documents. Nothing leaves the machine, and nothing is left behind.

One worker is cut off from its network right after it has written a result and before it could complete the message.
Its messages come back when their locks end, other workers find the result, and nobody asks the model again.

Without --docs the documents are samples, one of them too large, two that the content filter refuses, and one claim
that is broken on purpose. With --docs they are yours: every file below the folder, hidden ones apart.

The exit code is 0 if every claim has a result or is dead-lettered, 1 if one was lost or the model was called after
a result was there, and 2 for a mistake in the call.`

func devCommand() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine: emulators, workers, documents, results",
		Long:  devLong,
		Example: `  millrace dev
  millrace dev --docs ./contracts --out ./results
  millrace dev --docs ./contracts --model ticket-summary --tpm 200000 --workers 8 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return runDev(cmd.Context(), f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.docs, "docs", "", "folder with documents of your own (default: the samples)")
	flags.StringVar(&f.out, "out", "", "folder to copy the results to, as {tenant}/{correlation id}/{work id}.json")
	flags.StringVar(&f.tenant, "tenant", tenantRetail, "tenant that your documents belong to: "+tenantRetail+" or "+tenantHelp)
	flags.StringVar(&f.model, "model", aliasIngest, "alias that your documents are for: "+aliasIngest+", "+aliasTickets+" or "+aliasRescore)
	flags.IntVar(&f.tpm, "tpm", 0, "tokens per minute of the model (default: 60000 for the samples, 1000000 with --docs)")
	flags.IntVar(&f.workers, "workers", 3, "how many workers run")
	flags.BoolVar(&f.json, "json", false, "print one JSON object on standard output instead of text")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show the workers' logs on standard error")
	return cmd
}

func (f *devFlags) check() error {
	switch {
	case f.workers < 1 || f.workers > 100:
		return usageError{fmt.Errorf("--workers %d: use 1 to 100", f.workers)}
	case f.tpm < 0:
		return usageError{fmt.Errorf("--tpm %d: use a positive number of tokens per minute", f.tpm)}
	case f.tenant != tenantRetail && f.tenant != tenantHelp:
		return usageError{fmt.Errorf("--tenant %q: use %s or %s", f.tenant, tenantRetail, tenantHelp)}
	case f.model != aliasIngest && f.model != aliasTickets && f.model != aliasRescore:
		return usageError{fmt.Errorf("--model %q: use %s, %s or %s", f.model, aliasIngest, aliasTickets, aliasRescore)}
	}
	if f.docs != "" {
		if info, err := os.Stat(f.docs); err != nil || !info.IsDir() {
			return usageError{fmt.Errorf("--docs %s: is not a folder that can be read", f.docs)}
		}
	}
	if f.tpm == 0 {
		f.tpm = 60_000
		if f.docs != "" {
			f.tpm = 1_000_000
		}
	}
	return nil
}

func runDev(ctx context.Context, f devFlags, stdout, stderr io.Writer) (err error) {
	began := time.Now()
	documents, err := f.documents()
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if f.verbose {
		log = slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	maxDocument := int64(sampleMaxDocument)
	if f.docs != "" {
		maxDocument = 1 << 20
	}
	l, err := openLab(labOptions{tpm: f.tpm, workers: f.workers, maxDocument: maxDocument, log: log})
	closed := false
	shut := func() error {
		if closed {
			return nil
		}
		closed = true
		return l.close()
	}
	defer func() {
		if closeErr := shut(); err == nil {
			err = closeErr
		}
	}()
	if err != nil {
		return err
	}

	say := func(format string, args ...any) {
		if !f.json {
			fmt.Fprintf(stdout, format+"\n", args...)
		}
	}
	say("emulators on this machine: Service Bus queue %s, Blob, model %s with %d tokens per minute", sampleQueue, sampleDeployment, f.tpm)
	claims, err := l.submit(ctx, documents, f.docs == "")
	if err != nil {
		return err
	}
	say("%d claim checks sent; %d workers start", len(claims), f.workers)
	if err := l.fleet.start(f.workers); err != nil {
		return err
	}
	if err := l.watch(ctx, claims, progressTo(stdout, f.json), began); err != nil {
		return err
	}

	summary, err := l.judge(ctx, claims)
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := l.copyResults(f.out); err != nil {
			return err
		}
		say("%d results copied to %s", summary.Results, f.out)
	}
	if err := shut(); err != nil { // a worker that cannot stop is a failure worth telling
		return err
	}
	summary.Seconds = time.Since(began).Seconds()
	if err := summary.print(stdout, f.json); err != nil {
		return err
	}
	return summary.verdict()
}

// documents are what the flags ask to work on.
func (f *devFlags) documents() ([]document, error) {
	if f.docs == "" {
		return sampleDocuments()
	}
	return folderDocuments(f.docs, f.tenant, f.model)
}

// blobName is where a document is put: below its tenant's prefix, as the policy wants it.
func (d document) blobName() string { return path.Join(d.tenant, d.model, d.name) }
