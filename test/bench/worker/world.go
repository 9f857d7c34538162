package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/claimcheck"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/sbtest"
)

const (
	queue      = "doc-ingest"
	deployment = "gpt-4.1-mini"
	alias      = "summarize"
	tenant     = "acme"
	inputs     = "documents"
	outputs    = "results"
	modelKey   = "bench-only"
	prompt     = "Summarise the document in three sentences for a reader who has not seen it."
	maxOutput  = 200
	tpm        = 2_000_000_000 // never binds: this bench is about the worker, not about quota

	documentSize = 4 << 10
	memoryLimit  = "256MiB"         // of the pod, as GOMEMLIMIT: the machine of a bench seldom has a limit of its own
	runLimit     = 90 * time.Second // for one run, whatever went wrong in it
)

const catalogYAML = `
version: "1"
tenants:
  %[1]s: {team: bench, containers: ["%[2]s"]}
deployments:
  main: {endpoint: "%[3]s", deployment: %[4]s, tpm: %[5]d, api_key_env: BENCH_KEY}
aliases:
  %[6]s: {kind: chat, deployments: [main], prompt_file: prompt.md, prompt_version: "1", parameters: {max_completion_tokens: %[7]d, temperature: 0}}
policy: {allow_loopback_http: true}
`

// world is everything around a subject: broker, blobs and model on loopback ports, and a queue full of work.
type world struct {
	bus   *sbtest.Server
	blobs *blobtest.Server
	model *modeltest.Server

	blobHTTP *http.Server
	serving  sync.WaitGroup
	dials    atomic.Int64 // connections to blobs and model

	folder            string // of the catalog
	blobURL, modelURL string
	sums              map[string]string // correlation id → SHA-256 of its document
}

// openWorld starts the emulators and fills the queue. Close it in any case.
func openWorld(c cell) (*world, error) {
	w := &world{
		bus: &sbtest.Server{}, blobs: &blobtest.Server{}, sums: make(map[string]string, c.Messages),
		model: &modeltest.Server{
			APIKey: modelKey, Deployments: map[string]modeltest.Deployment{deployment: {TPM: tpm}},
			Latency: func(int, int) time.Duration { return c.Latency },
		},
	}
	if err := w.bus.CreateQueue(queue, nil); err != nil {
		return w, fmt.Errorf("create queue: %w", err)
	}
	if _, err := w.bus.Listen("127.0.0.1:0"); err != nil {
		return w, fmt.Errorf("listen for the broker: %w", err)
	}
	blobs, err := w.listen()
	if err != nil {
		return w, err
	}
	w.blobURL = "http://" + blobs.Addr().String()
	w.blobHTTP = &http.Server{Handler: w.blobs}
	w.serving.Go(func() { _ = w.blobHTTP.Serve(blobs) })
	models, err := w.listen()
	if err != nil {
		return w, err
	}
	w.modelURL = "http://" + models.Addr().String()
	w.model.ServeOn(models)
	if err := w.writeCatalog(); err != nil {
		return w, err
	}
	return w, w.fill(c.Messages)
}

func (w *world) close() error {
	err := errors.Join(w.bus.Close(), w.model.Close())
	if w.blobHTTP != nil {
		err = errors.Join(err, w.blobHTTP.Close())
	}
	w.serving.Wait()
	return errors.Join(err, os.RemoveAll(w.folder))
}

// listen opens a port that counts its connections.
func (w *world) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &countingListener{l, &w.dials}, nil
}

type countingListener struct {
	net.Listener
	n *atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}

// container returns the URL of a container, as claims have it.
func (w *world) container(name string) string {
	return w.blobURL + "/" + blobtest.DevAccount + "/" + name
}

func (w *world) writeCatalog() error {
	var err error
	if w.folder, err = os.MkdirTemp("", "millrace-bench-"); err != nil {
		return fmt.Errorf("make folder for the catalog: %w", err)
	}
	yaml := fmt.Sprintf(catalogYAML, tenant, w.container(inputs), w.modelURL, deployment, tpm, alias, maxOutput)
	for name, text := range map[string]string{"catalog.yaml": yaml, "prompt.md": prompt} {
		if err := os.WriteFile(filepath.Join(w.folder, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write catalog: %w", err)
		}
	}
	return nil
}

// fill stores n documents and puts their claims on the queue.
func (w *world) fill(n int) error {
	w.blobs.Put(blobtest.DevAccount, outputs, "probe", nil, nil) // makes the container
	w.blobs.Remove(blobtest.DevAccount, outputs, "probe")
	for i := range n {
		text := document(i)
		sum := sha256.Sum256([]byte(text))
		name, id := fmt.Sprintf("%s/%06d.txt", tenant, i), fmt.Sprintf("m%06d", i)
		etag := w.blobs.Put(blobtest.DevAccount, inputs, name, []byte(text), &blobtest.PutOptions{ContentType: "text/plain; charset=utf-8"})
		claim := claimcheck.Claim{Tenant: tenant, Model: alias, Blob: w.container(inputs) + "/" + name, ETag: etag, CorrelationID: id}
		body, err := claim.Encode()
		if err != nil {
			return err
		}
		if err := w.bus.Send(queue, sbtest.Message{ID: id, Body: body, ContentType: claimcheck.ContentType}); err != nil {
			return fmt.Errorf("send claim: %w", err)
		}
		w.sums[id] = hex.EncodeToString(sum[:])
	}
	return nil
}

// document returns text number i: sentences as a person writes them, with what JSON must escape and some letters beyond
// ASCII.
func document(i int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Minutes %06d\n\n", i)
	for line := 1; b.Len() < documentSize; line++ {
		fmt.Fprintf(&b, "%d. The \"north\" mill reported %d kg of flour & bran; Zoë noted\tthat the race ran dry at %d:%02d.\n",
			line, (i*31+line*17)%9000, line%24, (i+line)%60)
	}
	return strings.ToValidUTF8(b.String()[:documentSize], ".")
}

// environment is what the subject is told. The worker reads what it reads in a container; the names that begin with BENCH
// are for the loops.
func (w *world) environment(s spec) []string {
	return []string{
		"SERVICEBUS_CONNECTION_STRING=" + w.bus.ConnectionString(),
		"AZURE_STORAGE_CONNECTION_STRING=" + w.blobs.ConnectionString(w.blobURL),
		"MILLRACE_QUEUE=" + queue,
		"MILLRACE_CATALOG=" + filepath.Join(w.folder, "catalog.yaml"),
		"MILLRACE_RESULTS=" + outputs,
		"MILLRACE_LISTEN=off",
		fmt.Sprintf("MILLRACE_SLOTS=%d", s.Cell.Slots),
		fmt.Sprintf("MILLRACE_RECEIVERS=%d", min(2, s.Cell.Slots)),
		"BENCH_MODEL=" + w.modelURL,
		"BENCH_KEY=" + modelKey,
		"BENCH_PROFILE=" + s.Profile,
		"GOMEMLIMIT=" + memoryLimit,
	}
}

// run runs the subject until the queue is empty.
func (s spec) run(ctx context.Context) (f figures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("the run is not over after %v", runLimit))
	defer cancel()
	w, err := openWorld(s.Cell)
	defer func() { err = errors.Join(err, w.close()) }()
	if err != nil {
		return f, err
	}
	child, err := startSubject(s.Subject, w.environment(s))
	if err != nil {
		return f, err
	}
	f, err = w.measure(ctx, child, s.Cell.Messages)
	if err = errors.Join(err, child.stop()); err != nil {
		return f, fmt.Errorf("%w: %+v", err, w.bus.Stats(queue))
	}
	f.Connections = w.bus.Totals().Connections + int(w.dials.Load())
	return f, w.check(s.Cell.Messages)
}

// measure watches the work from the first tenth of it to its end.
func (w *world) measure(ctx context.Context, child *subject, n int) (figures, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watching := context.AfterFunc(child.ended, func() { stop(errors.New("the subject ended early")) })
	defer watching()

	done := 0
	reach := func(want int) (time.Time, sample, error) {
		err := w.bus.Await(ctx, queue, func(s sbtest.Stats) bool { done = s.Completed; return done >= want })
		now := time.Now()
		if err != nil {
			return now, sample{}, err
		}
		use, err := child.sample()
		return now, use, err
	}
	t0, before, err := reach(max(1, n/10))
	if err != nil {
		return figures{}, err
	}
	began := done
	t1, after, err := reach(n)
	if err != nil {
		return figures{}, err
	}
	messages := float64(done - began)
	return figures{
		Rate:        messages / t1.Sub(t0).Seconds(),
		CPU:         float64((after.CPU - before.CPU).Microseconds()) / messages,
		Allocations: float64(after.Mallocs-before.Mallocs) / messages,
		Bytes:       float64(after.Bytes-before.Bytes) / messages,
		Memory:      after.Memory,
	}, nil
}

// check holds a run to its work: n calls, n results of the right documents, n completions, and not one request more.
func (w *world) check(n int) error {
	var errs []error
	equal := func(what string, got, want int) {
		if got != want {
			errs = append(errs, fmt.Errorf("%s = %d, want %d", what, got, want))
		}
	}
	s := w.bus.Stats(queue)
	equal("messages completed", s.Completed, n)
	equal("messages left", s.Active+s.Locked+s.Scheduled+s.Deferred+s.DeadLettered, 0)
	// What arrives between two calls of ReceiveMessages is released by the SDK itself, at no cost of a delivery count.
	equal("deliveries that were not released at once", s.Deliveries-s.Released, n)
	equal("locks expired", s.LocksExpired, 0)
	m := w.model.Stats()
	equal("calls of the model", m.Calls, n)
	equal("requests to the model", m.Requests, n)
	once := 0
	for _, calls := range w.model.CallsPerInput() {
		if calls == 1 {
			once++
		}
	}
	equal("documents with exactly one call", once, n)
	b := w.blobs.Stats()
	equal("results created", b.Count(blobtest.OperationPutBlob, http.StatusCreated), n)
	equal("looks for a result", b.Count(blobtest.OperationGetBlob, http.StatusNotFound), n)
	equal("documents read", b.Count(blobtest.OperationGetBlob, http.StatusOK), n)
	equal("requests to blobs", b.Total(), 3*n)
	right := 0
	for _, name := range w.blobs.List(blobtest.DevAccount, outputs, "") {
		blob, _ := w.blobs.Blob(blobtest.DevAccount, outputs, name)
		id := strings.Split(strings.TrimSuffix(name, ".json"), "/")[1]
		// The model's text has the hash of the document it was sent.
		if sum, known := w.sums[id]; known && strings.Contains(string(blob.Body), "sha256 "+sum) {
			right++
		}
	}
	equal("results of the right document", right, n)
	return errors.Join(errs...)
}
