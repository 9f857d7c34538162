// Package e2e runs whole fleets: the wiring of the real worker process, the unmodified Azure SDKs and the emulators, in
// one synctest bubble with a network that takes random time.
package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/claimcheck"
	"millrace/cmd/worker/app"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/pipe"
	"millrace/test/sbtest"
)

const (
	queue      = "doc-ingest"
	deployment = "gpt-4.1-mini"
	alias      = "summarize"
	inputs     = "documents"
	results    = "results"

	blobHost  = "127.0.0.1:10000"
	modelHost = "127.0.0.1:10001"
	busHost   = "bus.test:5672"
	account   = "http://" + blobHost + "/" + blobtest.DevAccount

	maxOutput = 50
)

// world is what a fleet works in. Its network delays every write by up to latency, on the way to the broker only while
// slowBus is set: the Service Bus client holds a mutex over the round trips of opening links and renewing tokens, and who
// waits for a mutex stops a bubble's clock.
type world struct {
	t     *testing.T
	bus   *sbtest.Server
	blobs *blobtest.Server
	model *modeltest.Server

	listeners map[string]*pipe.Listener
	servers   sync.WaitGroup
	blobHTTP  *http.Server

	catalog string // path
	tpm     int
	slowBus atomic.Bool

	workers sync.WaitGroup
	stops   []context.CancelFunc
}

// newWorld must be called inside a bubble; its parts end with the test.
func newWorld(t *testing.T, tpm int, lock, latency time.Duration) *world {
	t.Helper()
	w := &world{
		t: t, tpm: tpm, bus: &sbtest.Server{}, blobs: &blobtest.Server{},
		model: &modeltest.Server{
			Deployments: map[string]modeltest.Deployment{deployment: {TPM: tpm}},
			Latency:     func(int, int) time.Duration { return 2 * time.Second },
		},
		listeners: map[string]*pipe.Listener{},
	}
	delay := func() time.Duration { return rand.N(latency + 1) }
	for _, host := range []string{blobHost, modelHost} {
		w.listeners[host] = &pipe.Listener{Latency: delay, Name: host}
	}
	w.listeners[busHost] = &pipe.Listener{Name: busHost, Latency: func() time.Duration {
		if !w.slowBus.Load() {
			return 0
		}
		return delay()
	}}
	if err := w.bus.CreateQueue(queue, &sbtest.QueueOptions{LockDuration: lock}); err != nil {
		t.Fatal(err)
	}
	w.blobHTTP = &http.Server{Handler: w.blobs}
	w.servers.Go(func() { _ = w.blobHTTP.Serve(w.listeners[blobHost]) })
	w.servers.Go(func() { _ = w.bus.Serve(w.listeners[busHost]) })
	w.model.ServeOn(w.listeners[modelHost])
	synctest.Wait() // everybody listens, and the broker knows its address
	w.writeCatalog()
	return w
}

func (w *world) close() {
	w.t.Helper()
	if err := w.bus.Close(); err != nil {
		w.t.Errorf("close broker: %v", err)
	}
	if err := w.model.Close(); err != nil {
		w.t.Errorf("close model: %v", err)
	}
	w.blobHTTP.Close()
	for _, l := range w.listeners {
		l.Close()
	}
	w.servers.Wait()
}

func (w *world) writeCatalog() {
	w.t.Helper()
	dir := w.t.TempDir()
	w.catalog = filepath.Join(dir, "catalog.yaml")
	key := filepath.Join(dir, "model.key")
	yaml := fmt.Sprintf(`
version: "1"
tenants:
  acme: {team: search, containers: ["%[1]s/%[2]s"]}
  globex: {team: support, containers: ["%[1]s/%[2]s"]}
deployments:
  main: {endpoint: "http://%[3]s", deployment: %[4]s, tpm: %[5]d, api_key_file: %[6]s}
aliases:
  %[7]s: {kind: chat, deployments: [main], prompt_file: prompt.md, prompt_version: "1", parameters: {max_completion_tokens: %[8]d}}
policy: {allow_loopback_http: true}
`, account, inputs, modelHost, deployment, w.tpm, key, alias, maxOutput)
	for file, text := range map[string]string{w.catalog: yaml, key: "k", filepath.Join(dir, "prompt.md"): "Summarise."} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// dial reaches the world's hosts by name, as a resolver and a network would.
func (w *world) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	l, ok := w.listeners[addr]
	if !ok {
		return nil, &net.AddrError{Err: "no such host", Addr: addr}
	}
	return l.Dial(ctx)
}

// fleet starts n workers with two links each over one connection.
func (w *world) fleet(n, slots int) {
	w.t.Helper()
	for range n {
		w.add(n, slots)
	}
}

// add starts one worker that may spend 1/share of the limit, and returns what cuts it off from its network for good.
func (w *world) add(share, slots int) (sever func()) {
	w.t.Helper()
	settings := map[string]string{
		"SERVICEBUS_CONNECTION_STRING":    w.bus.ConnectionString(),
		"AZURE_STORAGE_CONNECTION_STRING": w.blobs.ConnectionString("http://" + blobHost),
		"MILLRACE_QUEUE":                  queue, "MILLRACE_CATALOG": w.catalog, "MILLRACE_RESULTS": results,
		"MILLRACE_SLOTS": fmt.Sprint(slots), "MILLRACE_MAX_REPLICAS": fmt.Sprint(share),
		"MILLRACE_LISTEN": "off", // a real socket would stop the bubble's clock, and so would watching a folder
	}
	cfg, err := app.FromEnv(func(key string) (string, bool) { v, ok := settings[key]; return v, ok })
	if err != nil {
		w.t.Fatal(err)
	}
	network := &uplink{dial: w.dial}
	transport := &http.Transport{DialContext: network.connect, MaxIdleConnsPerHost: slots}
	cfg.Dial, cfg.Transport, cfg.Logger = network.connect, transport, slog.New(slog.DiscardHandler)
	cfg.Changed = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	w.stops = append(w.stops, cancel)
	w.workers.Go(func() {
		if err := app.Run(ctx, cfg); err != nil {
			w.t.Errorf("worker: %v", err)
		}
		transport.CloseIdleConnections()
	})
	return func() { network.sever(); cancel() }
}

// uplink is one worker's connection to the network.
type uplink struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (u *uplink) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock() // nobody severs between the dial and the entry
	if u.cut {
		return nil, net.ErrClosed
	}
	c, err := u.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	u.conns = append(u.conns, c)
	return c, nil
}

func (u *uplink) sever() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cut = true
	for _, c := range u.conns {
		c.Close()
	}
}

// awaitLinks waits until n receiver links are attached.
func (w *world) awaitLinks(n int) {
	w.t.Helper()
	if err := w.bus.Await(w.t.Context(), queue, func(s sbtest.Stats) bool { return s.Receivers == n }); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *world) stopFleet() {
	for _, stop := range w.stops {
		stop()
	}
	w.workers.Wait()
}

// submission is one claim on the queue.
type submission struct{ id, sha256, result string }

// submit puts n documents into Blob and their claims on the queue, with the unmodified sender.
func (w *world) submit(n int) []submission {
	w.t.Helper()
	w.blobs.Put(blobtest.DevAccount, results, "probe", nil, nil) // makes the container
	w.blobs.Remove(blobtest.DevAccount, results, "probe")
	claims := make([]submission, n)
	messages := make([]*azservicebus.Message, n)
	for i := range n {
		tenant := []string{"acme", "globex"}[i%2]
		text := fmt.Sprintf("document %d of %s: %x", i, tenant, sha256.Sum256(fmt.Append(nil, i)))
		name := fmt.Sprintf("%s/%05d.txt", tenant, i)
		etag := w.blobs.Put(blobtest.DevAccount, inputs, name, []byte(text), &blobtest.PutOptions{ContentType: "text/plain"})
		claim := claimcheck.Claim{Tenant: tenant, Model: alias, Blob: account + "/" + inputs + "/" + name, ETag: etag, CorrelationID: fmt.Sprintf("m%05d", i)}
		body, err := claim.Encode()
		if err != nil {
			w.t.Fatal(err)
		}
		result, err := claim.ResultName()
		if err != nil {
			w.t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		claims[i] = submission{claim.CorrelationID, hex.EncodeToString(sum[:]), result}
		messages[i] = &azservicebus.Message{MessageID: &claims[i].id, Body: body}
	}
	w.send(messages)
	return claims
}

func (w *world) send(messages []*azservicebus.Message) {
	w.t.Helper()
	ctx := w.t.Context()
	client, err := azservicebus.NewClientFromConnectionString(w.bus.ConnectionString(), &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return w.dial(ctx, "tcp", busHost)
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close(context.WithoutCancel(ctx))
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for len(messages) > 0 {
		batch, err := sender.NewMessageBatch(ctx, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		n := 0
		for n < len(messages) && batch.AddMessage(messages[n], nil) == nil {
			n++
		}
		if err := sender.SendMessageBatch(ctx, batch, nil); err != nil {
			w.t.Fatal(err)
		}
		messages = messages[n:]
	}
}

// await waits, in virtual time, until every message is settled.
func (w *world) await(limit time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	if err := w.bus.AwaitEmpty(ctx, queue); err != nil {
		w.t.Fatalf("the queue is not empty after %v of virtual time: %+v", limit, w.bus.Stats(queue))
	}
}

// checkResults holds what must be true of every run, whatever went wrong in it: each claim has exactly one result, made
// once, of exactly its document, and the model was never called again after it.
func (w *world) checkResults(claims []submission) {
	w.t.Helper()
	wrong := 0
	for _, c := range claims {
		blob, ok := w.blobs.Blob(blobtest.DevAccount, results, c.result)
		var result claimcheck.Result
		if ok {
			_ = json.Unmarshal(blob.Body, &result)
		}
		late := 0
		for _, arrival := range w.model.Arrivals(c.sha256) {
			if arrival.After(blob.Created) {
				late++
			}
		}
		creates := w.blobs.Creates(blobtest.DevAccount, results, c.result)
		if !ok || creates != 1 || result.Outcome != claimcheck.OutcomeSucceeded || result.Input.SHA256 != c.sha256 || late > 0 {
			if wrong++; wrong <= 5 {
				w.t.Errorf("%s: result %v, creates %d, outcome %q, calls after it %d, want true, 1, succeeded, 0", c.id, ok, creates, result.Outcome, late)
			}
		}
	}
	if got := len(w.blobs.List(blobtest.DevAccount, results, "")); got != len(claims) || wrong > 0 {
		w.t.Errorf("results = %d for %d claims, %d wrong", got, len(claims), wrong)
	}
	if peak := w.model.PeakMinute(deployment); peak > w.tpm {
		w.t.Errorf("peak TPM = %d, want at most %d", peak, w.tpm)
	}
	if s := w.bus.Stats(queue); s.Locked != 0 || s.Active != 0 || s.DeadLettered != 0 {
		w.t.Errorf("after the drain: %d locked, %d waiting, %d dead-lettered, want none", s.Locked, s.Active, s.DeadLettered)
	}
}
