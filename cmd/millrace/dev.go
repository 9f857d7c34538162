package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// leastTPM is the unit in which the service assigns quota to a deployment ("Manage Azure OpenAI quota").
const leastTPM = 1000

type devFlags struct {
	docs, out, tenant, model string
	tpm, workers, portBase   int
	keep, samples            bool
	json, verbose            bool
}

const devLong = `Runs the whole job on this machine: a Service Bus queue, a blob store and a model as emulators on loopback ports, a
fleet of the real workers, and documents. Nothing leaves the machine, and nothing is left behind.

One worker is cut off from its network right after it has written a result and before it could complete the message.
Its messages come back when their locks end, other workers find the result, and nobody asks the model again.

Without --docs the documents are samples, one of them too large, two that the content filter refuses, and one claim
that is broken on purpose. With --docs they are yours: every file below the folder and every link to one, but nothing
hidden, no folder behind a link, and nothing below --out. A file without a known extension is taken as text if it is
UTF-8. A file that cannot be read is named and left out. A name that no blob may have is changed on the way and named
as well. The results are below --out by tenant and by the name of their document; those of the same document from an
earlier run are replaced.

Each worker may spend --tpm / (--workers + 1) tokens a minute, since one of them is replaced on the way.

With --keep everything stays until Ctrl-C, for programs of your own, and nothing goes wrong on purpose. Standard output
has the lines of the environment that they, "millrace submit" and further workers need, and standard error commands to
paste. No documents are sent unless --docs or --samples asks for them; --workers 0 leaves the work to processes of your
own. All of it is in memory and gone afterwards.

The exit code is 0 if every claim has a result or is dead-lettered, or a run with --keep was stopped; 1 if one was lost,
the model was called after a result was there, a file was left out, or the run was interrupted; and 2 for a mistake in
the call.`

func devCommand() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine: emulators, workers, documents, results",
		Long:  devLong,
		Example: `  millrace dev
  millrace dev --docs ./contracts --out ./results
  millrace dev --docs ./contracts --model ticket-summary --tpm 200000 --workers 8 --json
  millrace dev --keep --workers 0 > millrace.env`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
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
	flags.IntVar(&f.tpm, "tpm", 0, "tokens per minute of the model (default: 60000 for the samples, 1000000 with --docs or --keep)")
	flags.IntVar(&f.workers, "workers", 3, "how many workers run; 0 with --keep for none")
	flags.BoolVar(&f.keep, "keep", false, "leave everything running until Ctrl-C and print how to reach it")
	flags.BoolVar(&f.samples, "samples", false, "with --keep: send the samples")
	flags.IntVar(&f.portBase, "port-base", 0, "port of Service Bus; Blob and the model have the next two (default: any that are free)")
	flags.BoolVar(&f.json, "json", false, "print one JSON object on standard output instead of text")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show the workers' logs on standard error")
	return cmd
}

// check refuses what cannot be meant; given reports whether a flag was.
func (f *devFlags) check(given func(string) bool) error {
	switch {
	case f.workers == 0 && !f.keep:
		return usageError{errors.New("--workers 0: use 1 to 100, or --keep to work with processes of your own")}
	case f.workers < 0 || f.workers > 100:
		return usageError{fmt.Errorf("--workers %d: use 1 to 100", f.workers)}
	case f.samples && !f.keep:
		return usageError{errors.New("--samples is for --keep; without it the samples are sent anyway")}
	case f.samples && f.docs != "":
		return usageError{errors.New("--samples and --docs: choose one of them")}
	case given("port-base") && (f.portBase < 1 || f.portBase > 65533):
		return usageError{fmt.Errorf("--port-base %d: use 1 to 65533", f.portBase)}
	case given("tpm") && (f.tpm < leastTPM || f.tpm > math.MaxInt32):
		return usageError{fmt.Errorf("--tpm %d: use %d to %d tokens per minute", f.tpm, leastTPM, math.MaxInt32)}
	case f.tenant != tenantRetail && f.tenant != tenantHelp:
		return usageError{fmt.Errorf("--tenant %q: use %s or %s", f.tenant, tenantRetail, tenantHelp)}
	case f.model != aliasIngest && f.model != aliasTickets && f.model != aliasRescore:
		return usageError{fmt.Errorf("--model %q: use %s, %s or %s", f.model, aliasIngest, aliasTickets, aliasRescore)}
	}
	for _, name := range []string{"tenant", "model"} {
		if given(name) && f.docs == "" {
			return usageError{fmt.Errorf("--%s is for documents of your own: name their folder with --docs", name)}
		}
	}
	for name, value := range map[string]string{"docs": f.docs, "out": f.out} {
		if given(name) && value == "" {
			return usageError{fmt.Errorf("--%s is empty: name a folder", name)}
		}
	}
	if f.tpm == 0 {
		f.tpm = 60_000
		if f.docs != "" || f.keep {
			f.tpm = 1_000_000
		}
	}
	return nil
}

func runDev(ctx context.Context, f devFlags, stdout, stderr io.Writer) error {
	began := time.Now()
	work, err := f.folder()
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if f.verbose {
		log = slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	maxDocument := int64(sampleMaxDocument)
	if f.docs != "" || f.keep && !f.samples {
		maxDocument = 1 << 20
	}
	replicas := f.workers + 1
	if f.keep {
		replicas = f.workers + keptReplicas
	}
	l, err := openLab(labOptions{
		tpm: f.tpm, replicas: replicas, maxDocument: maxDocument, portBase: f.portBase, kept: f.keep, log: log,
	})
	if err != nil {
		return errors.Join(err, l.close())
	}
	if least, err := l.leastTPM(); err != nil || f.tpm < least {
		if err == nil {
			err = usageError{fmt.Errorf("--tpm %d: too little for %d workers, use at least %d or fewer --workers", f.tpm, f.workers, least)}
		}
		return errors.Join(err, l.close())
	}
	screen := newScreen(stdout, stderr, f.json, f.verbose)
	sum, err := l.run(ctx, f, work, screen, began)
	finished := sum != nil && err == nil
	if finished && f.keep && len(work.documents) > 0 {
		sum.Seconds = time.Since(began).Seconds()
		out := stderr // standard output is for a shell
		if f.json {
			out = stdout
		}
		err = sum.print(out, f.json)
	}
	if f.keep && err == nil {
		err = l.await(ctx)
	}
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "stopping: calls that have begun are finished first; a second signal ends at once")
	}
	closeErr := l.close() // a worker that cannot stop is a failure worth telling
	if err = errors.Join(err, closeErr); ctx.Err() != nil && !(f.keep && finished) {
		err = l.interrupted()
	}
	if f.out != "" {
		err = errors.Join(err, l.deliver(f.out, screen))
	}
	if err != nil {
		return err
	}
	if !f.keep {
		sum.Seconds = time.Since(began).Seconds()
		if err := sum.print(stdout, f.json); err != nil {
			return err
		}
	}
	return sum.verdict()
}

// run does the work from the first upload to the last message settled, and says what it came to.
func (l *lab) run(ctx context.Context, f devFlags, work *folder, s *screen, began time.Time) (*summary, error) {
	head := fmt.Sprintf("emulators on this machine: Service Bus queue %s, Blob, model %s with %d tokens per minute", sampleQueue, sampleDeployment, f.tpm)
	if f.keep {
		s.note("%s; %d workers\n", head, f.workers)
	} else if err := s.say("%s", head); err != nil {
		return nil, err
	}
	if err := l.createContainers(ctx); err != nil {
		return nil, err
	}
	if f.keep {
		if err := l.keep(s); err != nil {
			return nil, err
		}
		if err := l.fleet.start(f.workers); err != nil {
			return nil, err
		}
		if len(work.documents)+len(work.left) == 0 {
			return &summary{}, nil
		}
	}
	sent, err := l.submit(ctx, work.documents, f.docs == "")
	if err != nil {
		return nil, err
	}
	sent.left = append(work.left, sent.left...)
	sent.tell(s)
	if len(sent.claims) == 0 {
		return nil, usageError{fmt.Errorf("--docs %s: there is no file in this folder that can be read", shown(f.docs))}
	}
	if !f.keep {
		if err := s.say("%d claim checks sent; %d workers start", len(sent.claims), f.workers); err != nil {
			return nil, err
		}
		if err := l.fleet.start(f.workers); err != nil {
			return nil, err
		}
	}
	if err := l.watch(ctx, len(sent.claims), s, began); err != nil {
		return nil, err
	}
	return l.judge(ctx, sent)
}

// folder is what the flags ask to work on; --out is made and tried on the way.
func (f *devFlags) folder() (*folder, error) {
	var out os.FileInfo
	if f.docs != "" {
		if info, err := os.Stat(f.docs); err != nil {
			return nil, usageError{fmt.Errorf("--docs %s: the folder cannot be read: %s", shown(f.docs), reason(err))}
		} else if !info.IsDir() {
			return nil, usageError{fmt.Errorf("--docs %s: is a file; name its folder", shown(f.docs))}
		}
	}
	if f.out != "" {
		var err error
		if out, err = openOut(f.out); err != nil {
			return nil, err
		}
	}
	if f.docs == "" && f.keep && !f.samples {
		return &folder{}, nil
	}
	if f.docs == "" {
		documents, err := sampleDocuments()
		return &folder{documents: documents}, err
	}
	docs, err := os.Stat(f.docs)
	if err != nil {
		return nil, err
	}
	if out != nil && os.SameFile(docs, out) {
		return nil, usageError{fmt.Errorf("--out %s: is the folder of the documents; name another one", shown(f.out))}
	}
	work, err := readFolder(f.docs, f.tenant, f.model, out)
	if err == nil && len(work.documents)+len(work.left) == 0 {
		return nil, usageError{fmt.Errorf("--docs %s: there is no file in this folder", shown(f.docs))}
	}
	return work, err
}
