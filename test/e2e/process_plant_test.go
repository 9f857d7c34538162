package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/claimcheck"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/sbtest"
)

// What must never be read in a log line of a worker.
const (
	canaryText   = "CANARY-TEXT"
	canaryPrompt = "CANARY-PROMPT"
	canaryAnswer = "CANARY-ANSWER"
	canaryKey    = "CANARY-KEY"
	canaryBus    = "CANARY-BUS"
	canarySAS    = "CANARY-SAS"
)

// patience is how long any one wait may take on a slow machine. It bounds a test that fails, no other.
const patience = 2 * time.Minute

// plant is the emulators of one test, on loopback TCP, and the worker processes that work against them.
type plant struct {
	t      *testing.T
	binary string
	bus    *sbtest.Server
	blobs  *blobtest.Server
	model  *modeltest.Server

	busAddr, blobURL, modelURL string
}

// openPlant starts the emulators; they end with the test, after its processes.
func openPlant(t *testing.T, binary string, lock time.Duration, blobs *blobtest.Server, model *modeltest.Server) *plant {
	t.Helper()
	p := &plant{t: t, binary: binary, bus: &sbtest.Server{}, blobs: blobs, model: model}
	if err := p.bus.CreateQueue(queue, &sbtest.QueueOptions{LockDuration: lock}); err != nil {
		t.Fatal(err)
	}
	busAddr, err := p.bus.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	blobAddr, err := p.blobs.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	modelAddr, err := p.model.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.busAddr, p.blobURL, p.modelURL = busAddr.String(), "http://"+blobAddr.String(), "http://"+modelAddr.String()
	t.Cleanup(func() {
		if err := errors.Join(p.model.Close(), p.blobs.Close(), p.bus.Close()); err != nil {
			t.Errorf("close emulators: %v", err)
		}
	})
	p.blobs.Put(blobtest.DevAccount, results, "probe", nil, nil) // makes the container
	p.blobs.Remove(blobtest.DevAccount, results, "probe")
	return p
}

// account is the URL of the storage account.
func (p *plant) account() string { return p.blobURL + "/" + blobtest.DevAccount }

// settings are the environment of a worker that calls the model with this key, changed by change.
func (p *plant) settings(key string, change map[string]string) map[string]string {
	p.t.Helper()
	env := map[string]string{
		"SERVICEBUS_CONNECTION_STRING":    busConnection(p.busAddr),
		"AZURE_STORAGE_CONNECTION_STRING": p.blobs.ConnectionString(p.blobURL),
		"MILLRACE_QUEUE":                  queue,
		"MILLRACE_CATALOG":                p.writeCatalog(key),
		"MILLRACE_RESULTS":                results,
		"MILLRACE_LOG_LEVEL":              "debug",
		"MILLRACE_LISTEN":                 "off", // several processes of one machine would fight for the port
	}
	for name, value := range change {
		env[name] = value
	}
	return env
}

func busConnection(addr string) string {
	return "Endpoint=sb://" + addr + ";SharedAccessKeyName=k;SharedAccessKey=" + canaryBus + ";UseDevelopmentEmulator=true"
}

// writeCatalog returns the path of a catalog whose only deployment is called with this key.
func (p *plant) writeCatalog(key string) string {
	p.t.Helper()
	dir := p.t.TempDir()
	path, keyFile := filepath.Join(dir, "catalog.yaml"), filepath.Join(dir, "model.key")
	yaml := fmt.Sprintf(`
version: "1"
tenants:
  acme: {team: search, containers: ["%[1]s/%[2]s"]}
  globex: {team: support, containers: ["%[1]s/%[2]s"]}
deployments:
  main: {endpoint: "%[3]s", deployment: %[4]s, tpm: 1000000000, context_window: 1000000, api_key_file: %[5]s}
aliases:
  %[6]s: {kind: chat, deployments: [main], prompt_file: prompt.md, prompt_version: "1", parameters: {max_completion_tokens: %[7]d}}
policy: {allow_loopback_http: true}
`, p.account(), inputs, p.modelURL, deployment, keyFile, alias, maxOutput)
	for file, text := range map[string]string{path: yaml, keyFile: key, filepath.Join(dir, "prompt.md"): canaryPrompt} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	return path
}

// start runs a worker. Its key names it to the model.
func (p *plant) start(key string, change map[string]string) *workerProcess {
	p.t.Helper()
	return launch(p.t, p.binary, p.settings(key, change))
}

// submit stores n documents of at least size bytes and puts a claim for each on the queue.
func (p *plant) submit(n, size int) []submission {
	p.t.Helper()
	claims := make([]submission, n)
	for i := range n {
		tenant := []string{"acme", "globex"}[i%2]
		text := fmt.Sprintf("%s %d of %s ", canaryText, i, tenant)
		text += strings.Repeat("x", max(0, size-len(text)))
		name := fmt.Sprintf("%s/%05d.txt", tenant, i)
		etag := p.blobs.Put(blobtest.DevAccount, inputs, name, []byte(text), &blobtest.PutOptions{ContentType: "text/plain"})
		claim := claimcheck.Claim{Tenant: tenant, Model: alias, Blob: p.account() + "/" + inputs + "/" + name, ETag: etag, CorrelationID: fmt.Sprintf("m%05d", i)}
		result, err := claim.ResultName()
		if err != nil {
			p.t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		claims[i] = submission{claim.CorrelationID, hex.EncodeToString(sum[:]), result}
		p.send(claim)
	}
	return claims
}

func (p *plant) send(claim claimcheck.Claim) {
	p.t.Helper()
	body, err := claim.Encode()
	if err != nil {
		p.t.Fatal(err)
	}
	p.sendRaw(claim.CorrelationID, body)
}

func (p *plant) sendRaw(id string, body []byte) {
	p.t.Helper()
	if err := p.bus.Send(queue, sbtest.Message{ID: id, Body: body}); err != nil {
		p.t.Fatal(err)
	}
}

// await waits for a state of the queue.
func (p *plant) await(what string, cond func(sbtest.Stats) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := p.bus.Await(ctx, queue, cond); err != nil {
		p.t.Fatalf("waiting for %s: %v; the queue is %+v", what, err, p.bus.Stats(queue))
	}
}

func (p *plant) awaitEmpty() {
	p.t.Helper()
	p.await("an empty queue", func(s sbtest.Stats) bool { return s.Active+s.Locked+s.Scheduled+s.Deferred == 0 })
}

func (p *plant) awaitCalls(n int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := p.model.AwaitCalls(ctx, n); err != nil {
		p.t.Fatalf("waiting for %d calls: %v; there were %d", n, err, p.model.Calls())
	}
}

// safety is what the order "result first, message second" promises, counted.
type safety struct {
	lost  int // claims without the result of their document
	twice int // results that were written more than once
	late  int // model calls that began after the result was there
}

// judge counts over these claims what must be zero.
func (p *plant) judge(claims []submission) (s safety) {
	p.t.Helper()
	for _, c := range claims {
		blob, ok := p.blobs.Blob(blobtest.DevAccount, results, c.result)
		var result claimcheck.Result
		if ok {
			_ = json.Unmarshal(blob.Body, &result) // what is no result has no outcome
		}
		if result.Outcome != claimcheck.OutcomeSucceeded || result.Input.SHA256 != c.sha256 {
			s.lost++
		}
		if p.blobs.Creates(blobtest.DevAccount, results, c.result) > 1 {
			s.twice++
		}
		for _, arrival := range p.model.Arrivals(c.sha256) {
			if ok && arrival.After(blob.Created) {
				s.late++
			}
		}
	}
	return s
}

// deliveredAgain counts the messages that were handed out more than once.
func (p *plant) deliveredAgain(claims []submission) (n int) {
	for _, c := range claims {
		if p.bus.DeliveriesOf(queue, c.id) > 1 {
			n++
		}
	}
	return n
}

// check fails the test unless every claim has its one result and nothing is left on the queue.
func (p *plant) check(claims []submission) {
	p.t.Helper()
	if got := p.judge(claims); got != (safety{}) {
		p.t.Errorf("results lost %d, written twice %d, calls after a result %d, want 0, 0, 0", got.lost, got.twice, got.late)
	}
	if got := len(p.blobs.List(blobtest.DevAccount, results, "")); got != len(claims) {
		p.t.Errorf("results = %d, want %d", got, len(claims))
	}
	if s := p.bus.Stats(queue); s.Active+s.Locked+s.Scheduled+s.Deferred != 0 {
		p.t.Errorf("left on the queue: %d waiting, %d locked, %d scheduled, %d deferred, want none", s.Active, s.Locked, s.Scheduled, s.Deferred)
	}
}
