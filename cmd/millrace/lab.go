package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"text/template"
	"time"

	_ "embed"

	"millrace/internal/catalog"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/sbtest"
)

const (
	sampleMaxDocument = 64 << 10 // bytes; the catalog's limit for the samples
	queueLock         = 5 * time.Second
	keptLock          = 30 * time.Second
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
	pages *http.Server   // serves blobs
	ended sync.WaitGroup // of pages

	blobURL, modelURL string
	folder            string // of the catalog
	settings          map[string]string
	tpm, replicas     int
	kept              bool
	log               *slog.Logger

	mu      sync.Mutex
	refused map[string]bool // SHA-256 of documents that the content filter refuses

	calls traffic
	fleet fleet
}

type labOptions struct {
	tpm         int
	replicas    int // most workers that ever run
	maxDocument int64
	portBase    int  // first of three ports that follow each other; 0 is any three
	kept        bool // for people and their own programs: nothing goes wrong on purpose
	log         *slog.Logger
}

// openLab starts the emulators on loopback ports and writes the catalog. close it in any case.
func openLab(o labOptions) (*lab, error) {
	l := &lab{tpm: o.tpm, replicas: o.replicas, kept: o.kept, log: o.log, refused: make(map[string]bool)}
	l.bus = &sbtest.Server{}
	l.blobs = &blobtest.Server{}
	l.model = &modeltest.Server{
		APIKey:      devKey,
		Deployments: map[string]modeltest.Deployment{sampleDeployment: {TPM: o.tpm}},
		Latency: func(_, output int) time.Duration {
			return modelBase + time.Duration(output)*modelPerToken
		},
		Behave:  l.behave,
		Observe: l.calls.observe,
	}
	lock := queueLock
	if o.kept {
		lock = keptLock
	}
	if err := l.bus.CreateQueue(sampleQueue, &sbtest.QueueOptions{LockDuration: lock}); err != nil {
		return l, fmt.Errorf("create queue: %w", err)
	}
	if err := l.listen(o.portBase); err != nil {
		return l, err
	}
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
		"MILLRACE_MAX_REPLICAS":           fmt.Sprint(o.replicas), // see share
		"MILLRACE_DRAIN":                  "5s",
		"MILLRACE_LISTEN":                 "off", // workers of one machine would fight for the port
	}
	l.fleet = fleet{lab: l, ended: make(chan struct{}, 1)}
	return l, nil
}

// listen opens the ports of the three services.
func (l *lab) listen(base int) error {
	addrs := make([]net.Addr, 3)
	for i, listen := range []func(string) (net.Addr, error){l.bus.Listen, l.serveBlobs, l.model.Listen} {
		port := 0
		if base > 0 {
			port = base + i
		}
		addr, err := listen(fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil && base > 0 {
			return usageError{fmt.Errorf("--port-base %d: port %d cannot be opened: %s; choose another, or leave it out for any", base, port, rootCause(err))}
		}
		if err != nil {
			return err
		}
		addrs[i] = addr
	}
	l.blobURL, l.modelURL = "http://"+addrs[1].String(), "http://"+addrs[2].String()
	return nil
}

// serveBlobs serves the blob store until close, which cuts what is open: a client of a kept lab may hold a connection that
// it has not used, and a server that ends politely would wait for it.
func (l *lab) serveBlobs(addr string) (net.Addr, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	l.pages = &http.Server{Handler: l.blobs, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: 30 * time.Second}
	l.ended.Go(func() { _ = l.pages.Serve(listener) }) // what it returns is that it was closed
	return listener.Addr(), nil
}

// closeBlobs ends what serveBlobs began.
func (l *lab) closeBlobs() error {
	if l.pages == nil {
		return nil
	}
	err := l.pages.Close()
	l.ended.Wait()
	return err
}

// rootCause is the innermost of the errors that err wraps.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
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

// close stops the workers, then the emulators. The folder goes first, since a process that is killed while its workers
// drain would leave it behind: workers read the catalog when they start, and the key of a call before the call.
func (l *lab) close() error {
	folderErr := os.RemoveAll(l.folder)
	return errors.Join(l.fleet.stop(), l.bus.Close(), l.closeBlobs(), l.model.Close(), folderErr)
}

// leastTPM is the limit under which a worker's share holds no request at all, whatever the document; workers refuse to
// start then.
func (l *lab) leastTPM() (int, error) {
	c, err := catalog.Load(l.settings["MILLRACE_CATALOG"])
	if err != nil {
		return 0, err
	}
	least := 0
	for _, a := range c.Aliases {
		least = max(least, a.Estimate(1))
	}
	return least * l.replicas, nil
}

// share is what one worker may spend in a minute. Whoever replaces another counts as one more: what was spent stays spent.
func (l *lab) share() int { return l.tpm / l.replicas }
