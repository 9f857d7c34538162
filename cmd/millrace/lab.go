package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"text/template"
	"time"

	_ "embed"

	"millrace/cmd/worker/app"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/sbtest"
)

const (
	sampleMaxDocument = 64 << 10 // bytes; the catalog's limit for the samples
	queueLock         = 5 * time.Second
	sampleDeployment  = "gpt-4.1-mini"
	inputContainer    = "documents"
	resultContainer   = "results"
	devKey            = "development-only"
	// A model that takes a second for a short answer, as small ones do.
	modelBase     = 300 * time.Millisecond
	modelPerToken = 8 * time.Millisecond
)

//go:embed catalog.yaml.tmpl
var catalogTemplate string

// lab is everything the fleet needs, on this machine: a broker, a blob store, a model, and a folder with the catalog.
type lab struct {
	bus   *sbtest.Server
	blobs *blobtest.Server
	model *modeltest.Server

	blobURL, modelURL string
	folder            string // of the catalog
	settings          map[string]string
	tpm               int
	log               *slog.Logger

	mu      sync.Mutex
	refused map[string]bool // SHA-256 of documents that the content filter refuses

	fleet fleet
}

type labOptions struct {
	tpm, workers int
	maxDocument  int64
	log          *slog.Logger
}

// openLab starts the emulators on loopback ports and writes the catalog. close it in any case.
func openLab(o labOptions) (*lab, error) {
	l := &lab{tpm: o.tpm, log: o.log, refused: make(map[string]bool)}
	l.bus = &sbtest.Server{}
	l.blobs = &blobtest.Server{}
	l.model = &modeltest.Server{
		APIKey:      devKey,
		Deployments: map[string]modeltest.Deployment{sampleDeployment: {TPM: o.tpm}},
		Latency: func(_, output int) time.Duration {
			return modelBase + time.Duration(output)*modelPerToken
		},
		Behave: l.behave,
	}
	if err := l.bus.CreateQueue(sampleQueue, &sbtest.QueueOptions{LockDuration: queueLock}); err != nil {
		return l, fmt.Errorf("create queue: %w", err)
	}
	if _, err := l.bus.Listen("127.0.0.1:0"); err != nil {
		return l, err
	}
	blobAddr, err := l.blobs.Listen("127.0.0.1:0")
	if err != nil {
		return l, err
	}
	modelAddr, err := l.model.Listen("127.0.0.1:0")
	if err != nil {
		return l, err
	}
	l.blobURL, l.modelURL = "http://"+blobAddr.String(), "http://"+modelAddr.String()
	if err := l.writeCatalog(o); err != nil {
		return l, err
	}
	l.settings = map[string]string{
		"SERVICEBUS_CONNECTION_STRING":    l.bus.ConnectionString(),
		"AZURE_STORAGE_CONNECTION_STRING": l.blobs.ConnectionString(l.blobURL),
		"MILLRACE_QUEUE":                  sampleQueue,
		"MILLRACE_CATALOG":                filepath.Join(l.folder, "catalog.yaml"),
		"MILLRACE_RESULTS":                resultContainer,
		"MILLRACE_SLOTS":                  "4",
		"MILLRACE_MAX_REPLICAS":           fmt.Sprint(o.workers + 1), // one is replaced, and what it spent stays spent
		"MILLRACE_DRAIN":                  "5s",
	}
	l.fleet = fleet{lab: l}
	return l, nil
}

// writeCatalog puts the catalog and its prompts into a folder of their own.
func (l *lab) writeCatalog(o labOptions) error {
	var err error
	if l.folder, err = os.MkdirTemp("", "millrace-dev-"); err != nil {
		return fmt.Errorf("make folder for the catalog: %w", err)
	}
	prompts, err := fs.Sub(samples, "samples/prompts")
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(l.folder, "prompts"), prompts); err != nil {
		return fmt.Errorf("write prompts: %w", err)
	}
	key := filepath.Join(l.folder, "model.key")
	if err := os.WriteFile(key, []byte(devKey), 0o600); err != nil {
		return fmt.Errorf("write model key: %w", err)
	}
	file, err := os.Create(filepath.Join(l.folder, "catalog.yaml"))
	if err != nil {
		return fmt.Errorf("write catalog: %w", err)
	}
	t, err := template.New("catalog").Parse(catalogTemplate)
	if err == nil {
		err = t.Execute(file, map[string]any{
			"Container": l.containerURL(), "Endpoint": l.modelURL, "Deployment": sampleDeployment,
			"TPM": o.tpm, "MaxDocument": o.maxDocument, "KeyFile": key,
		})
	}
	return errors.Join(err, file.Close())
}

// accountURL is where the blob emulator's account lives, path style.
func (l *lab) accountURL() string   { return l.blobURL + "/" + blobtest.DevAccount }
func (l *lab) containerURL() string { return l.accountURL() + "/" + inputContainer }

// refuse makes the content filter refuse a document.
func (l *lab) refuse(body []byte) {
	sum := sha256.Sum256(body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[hex.EncodeToString(sum[:])] = true
}

func (l *lab) behave(c modeltest.Call) modeltest.Behaviour {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused[c.SHA256] {
		return modeltest.Behaviour{Kind: modeltest.PromptFiltered}
	}
	return modeltest.Behaviour{}
}

// close stops the workers first, then the emulators.
func (l *lab) close() error {
	err := l.fleet.stop()
	return errors.Join(err, l.bus.Close(), l.blobs.Close(), l.model.Close(), os.RemoveAll(l.folder))
}

// fleet is the workers of a lab. One of them is cut off from its network right after it has written a result and before
// it can complete the message, and replaced, as Kubernetes replaces a pod whose node is gone.
type fleet struct {
	lab  *lab
	done sync.WaitGroup

	mu       sync.Mutex
	stopped  bool
	stopAll  []context.CancelFunc
	errs     []error
	started  int
	cutOff   int
	cutAfter string // path of the result that was written last by the worker that was cut off
}

// start runs n workers until stop.
func (f *fleet) start(n int) error {
	for range n {
		if err := f.add(); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) add() error {
	cfg, err := app.FromEnv(func(key string) (string, bool) { v, ok := f.lab.settings[key]; return v, ok })
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return nil
	}
	f.started++
	ctx, cancel := context.WithCancel(context.Background())
	f.stopAll = append(f.stopAll, cancel)
	network := newCable("/"+blobtest.DevAccount+"/"+resultContainer+"/", func(path string) bool { return f.written(path, cancel) })
	cfg.Dial, cfg.Transport = network.dial, network
	cfg.Logger = f.lab.log.With("worker", f.started)
	f.done.Go(func() {
		err := app.Run(ctx, cfg)
		network.close()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err)
	})
	return nil
}

// written decides whether the worker that has just created a result is the one to be cut off: the first is.
func (f *fleet) written(path string, kill context.CancelFunc) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cutOff > 0 {
		return false
	}
	f.cutOff, f.cutAfter = 1, path
	f.done.Go(func() {
		kill()
		if err := f.add(); err != nil {
			f.lab.log.Error("the worker that was cut off could not be replaced", "err", err)
		}
	})
	return true
}

// stop drains every worker and waits for all of them.
func (f *fleet) stop() error {
	f.mu.Lock()
	f.stopped = true
	for _, cancel := range f.stopAll {
		cancel()
	}
	f.mu.Unlock()
	f.done.Wait()
	return errors.Join(f.errs...)
}
