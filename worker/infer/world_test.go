package infer_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"millrace/claimcheck"
	"millrace/internal/catalog"
	"millrace/internal/model"
	"millrace/quota"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/pipe"
	"millrace/worker"
	"millrace/worker/infer"
)

const (
	docsHost  = "docs.blob.core.windows.net"
	storeHost = "store.blob.core.windows.net"
	modelHost = "acme.openai.azure.com"

	docs      = "docs" // account of the documents
	inbox     = "inbox"
	store     = "store" // account of the results
	results   = "results"
	mainName  = "gpt-main" // deployments at the model resource
	spareName = "gpt-spare"
	mainDep   = "model:" + modelHost + "/" + mainName

	maxOutput = 100 // max_completion_tokens of every alias
	prompt    = "Summarise the document."

	// What must never be in a verdict, a log line or the detail of a result.
	canaryText  = "CANARY-TEXT"
	canaryKey   = "CANARY-MODEL-KEY"
	canaryToken = "CANARY-STORAGE-TOKEN"
	canarySAS   = "CANARY-SAS-SIGNATURE"
)

// catalogYAML has one alias for each thing an alias can be: plain, with an output schema, with two deployments.
const catalogYAML = `
version: "1"
tenants:
  acme: {team: search, containers: ["https://docs.blob.core.windows.net/inbox"]}
  globex: {team: support, containers: ["https://docs.blob.core.windows.net/inbox"]}
deployments:
  main:
    endpoint: https://acme.openai.azure.com
    deployment: gpt-main
    tpm: %d
    price: {rule: "2026-11", currency: USD, input: 0.4, cached: 0.1, output: 1.6}
  spare:
    endpoint: https://acme.openai.azure.com
    deployment: gpt-spare
    api_version: "2024-10-21"
    tpm: 100000
    price: {rule: "spare", currency: EUR, input: 4, output: 16}
aliases:
  summarize: {kind: chat, deployments: [main], prompt_file: prompt.md, prompt_version: "7", parameters: {max_completion_tokens: 100, temperature: 0}}
  extract: {kind: chat, deployments: [main], prompt_file: prompt.md, prompt_version: "7", output_schema_file: schema.json, parameters: {max_completion_tokens: 100}}
  wide: {kind: chat, deployments: [main, spare], prompt_file: prompt.md, prompt_version: "7", parameters: {max_completion_tokens: 100}}
policy: {max_document_bytes: 65536}
`

const schemaJSON = `{"type":"object","properties":{"sha256":{"type":"string"}},"required":["sha256"],"additionalProperties":false}`

// options are what a test changes about its world. Nil means that everything works at once and without limit.
type options struct {
	tpm     int                             // of main, for the catalog and its limiter. Default: 100,000
	share   quota.Share                     // of main. Default: all of tpm
	models  map[string]modeltest.Deployment // what the service knows. Default: both deployments, without limits
	behave  func(modeltest.Call) modeltest.Behaviour
	latency time.Duration                             // of the model
	fault   func(blobtest.Request) *blobtest.Fault    // of storage
	key     func() (string, error)                    // Default: the right one
	dial    func(ctx context.Context, h string) error // refuses connections to a host
}

// world is a handler with everything it talks to: unmodified clients over connections in memory.
type world struct {
	t           testing.TB
	blobs       *blobtest.Server
	model       *modeltest.Server
	catalog     *catalog.Catalog
	deployments map[string]*infer.Deployment
	handler     *infer.Handler
	schema      *jsonschema.Schema // of results
}

// bubble runs f with a world in virtual time. Whatever f did, nothing may be left in a limiter that was not sent.
func bubble(t *testing.T, o *options, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, o)
		f(t, w)
		for name, d := range w.deployments {
			if s := d.Limiter.Stats(); s.InFlight != 0 || s.Waiting != 0 {
				t.Errorf("limiter of %s at the end: %d tokens reserved and not sent, %d waiting, want none", name, s.InFlight, s.Waiting)
			}
		}
	})
}

func newWorld(t testing.TB, o *options) *world {
	t.Helper()
	if o == nil {
		o = &options{}
	}
	w := &world{
		t:      t,
		blobs:  &blobtest.Server{Accounts: map[string]string{docs: blobtest.DevKey, store: blobtest.DevKey}, Token: canaryToken, Fault: o.fault},
		model:  &modeltest.Server{APIKey: canaryKey, Deployments: o.models, Behave: o.behave},
		schema: compile(t, claimcheck.ResultSchema()),
	}
	if o.models == nil {
		w.model.Deployments = map[string]modeltest.Deployment{mainName: {}, spareName: {}}
	}
	if o.latency > 0 {
		w.model.Latency = func(int, int) time.Duration { return o.latency }
	}
	w.blobs.Put(store, results, "probe", nil, nil) // makes the container
	w.blobs.Remove(store, results, "probe")
	w.build(o, serve(t, w, o))
	return w
}

// serve starts both services and returns the only network there is. Connections are plain although the URLs say https,
// because what is tested is above TLS.
func serve(t testing.TB, w *world, o *options) *http.Transport {
	blobs, models := &pipe.Listener{Name: "blob"}, &pipe.Listener{Name: "model"}
	blobHTTP := &http.Server{Handler: w.blobs}
	var serving sync.WaitGroup
	serving.Go(func() { _ = blobHTTP.Serve(blobs) })
	w.model.ServeOn(models)
	transport := &http.Transport{
		MaxIdleConnsPerHost: 64, ResponseHeaderTimeout: 5 * time.Minute,
		DialTLSContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(addr)
			if o.dial != nil {
				if err := o.dial(ctx, host); err != nil {
					return nil, err
				}
			}
			switch host {
			case docsHost, storeHost:
				return blobs.Dial(ctx)
			case modelHost:
				return models.Dial(ctx)
			}
			t.Errorf("connection to %s, which no claim may lead to", host)
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		},
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = blobHTTP.Close()
		if err := w.model.Close(); err != nil {
			t.Errorf("close model: %v", err)
		}
		serving.Wait()
	})
	return transport
}

func (w *world) build(o *options, transport http.RoundTripper) {
	w.t.Helper()
	tpm := o.tpm
	if tpm == 0 {
		tpm = 100_000
	}
	var err error
	w.catalog, err = catalog.Parse(fmt.Appendf(nil, catalogYAML, tpm), fstest.MapFS{
		"prompt.md": {Data: []byte(prompt)}, "schema.json": {Data: []byte(schemaJSON)},
	}, "catalog.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	key := o.key
	if key == nil {
		key = func() (string, error) { return canaryKey, nil }
	}
	w.deployments = make(map[string]*infer.Deployment)
	for name, d := range w.catalog.Deployments {
		client, err := model.New(model.Deployment{
			Endpoint: d.Endpoint, Name: d.Deployment, APIVersion: d.APIVersion, TPM: d.TPM, Key: key,
		}, &model.Options{Transport: transport})
		if err != nil {
			w.t.Fatal(err)
		}
		share := quota.Static(d.Budget())
		if name == "main" && o.share != nil {
			share = o.share
		}
		w.deployments[name] = &infer.Deployment{Deployment: d, Client: client, Limiter: quota.New(share, &quota.Options{Weights: w.catalog.Weights()})}
	}
	policy := claimcheck.Policy{Containers: w.catalog.Containers(), Results: "https://" + storeHost + "/" + results}
	if err := policy.Validate(); err != nil {
		w.t.Fatal(err)
	}
	s, err := claimcheck.NewStore(policy.Results, claimcheck.OpenIdentity(identity{}), &claimcheck.StoreOptions{
		MaxDocument: w.catalog.Policy.MaxDocumentBytes, Transport: transport,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.handler, err = infer.New(infer.Config{Catalog: w.catalog, Policy: policy, Store: s, Deployments: w.deployments}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
}

// identity gives the one token that storage accepts.
type identity struct{}

func (identity) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: canaryToken, ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

func compile(t testing.TB, schema string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema:result", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema:result")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// text is a document's text: short, unlike every other, and with the canary in it.
func text(name string) string { return "Document " + name + ": " + canaryText + " ends on 1 May." }

// put stores a document of acme and returns a sound claim for it that pins what was stored.
func (w *world) put(name, body string, o *blobtest.PutOptions) claimcheck.Claim {
	if o == nil {
		o = &blobtest.PutOptions{ContentType: "text/plain; charset=utf-8"}
	}
	etag := w.blobs.Put(docs, inbox, "acme/"+name, []byte(body), o)
	return claimcheck.Claim{
		Tenant: "acme", Model: "summarize", Blob: "https://" + docsHost + "/" + inbox + "/acme/" + name,
		CorrelationID: "order-1", ETag: claimcheck.CanonicalETag(etag),
	}
}

// message is one delivery of c.
func (w *world) message(c claimcheck.Claim) *worker.Message {
	w.t.Helper()
	body, err := c.Encode()
	if err != nil {
		w.t.Fatalf("Encode() = %v", err)
	}
	return &worker.Message{ID: "m-1", ContentType: claimcheck.ContentType, Body: body, Delivery: 1, Enqueued: time.Now()}
}

// handle handles one delivery of c.
func (w *world) handle(ctx context.Context, c claimcheck.Claim) worker.Verdict {
	w.t.Helper()
	return w.handleMessage(ctx, w.message(c))
}

// handleMessage handles a message and holds the verdict to what is true of every verdict: it repeats no secret and no
// text of a document, and says what it has to say in one short line.
func (w *world) handleMessage(ctx context.Context, m *worker.Message) worker.Verdict {
	w.t.Helper()
	v := w.handler.Handle(ctx, m)
	checkSilent(w.t, "verdict", fmt.Sprintf("%v|%+v|%s|%+v", v, v, v.Err, v.Err))
	if len(v.Detail) > 300 || strings.ContainsAny(v.Detail, "\r\n") {
		w.t.Errorf("verdict.Detail = %q, want one short line", v.Detail)
	}
	return v
}

func checkSilent(t testing.TB, what, s string) {
	t.Helper()
	for _, canary := range []string{canaryText, canaryKey, canaryToken, canarySAS} {
		if strings.Contains(s, canary) {
			t.Errorf("%s repeats %s: %s", what, canary, s)
		}
	}
}

// result returns c's result and whether there is one, and holds it to what is true of every result: it is where the claim
// says, was created once, matches the published schema, and its detail tells nothing of the document.
func (w *world) result(c claimcheck.Claim) (claimcheck.Result, bool) {
	w.t.Helper()
	name, err := c.ResultName()
	if err != nil {
		w.t.Fatalf("ResultName() = %v", err)
	}
	blob, ok := w.blobs.Blob(store, results, name)
	if !ok {
		return claimcheck.Result{}, false
	}
	if n := w.blobs.Creates(store, results, name); n != 1 {
		w.t.Errorf("the result was created %d times, want once", n)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(blob.Body)))
	if err != nil {
		w.t.Fatalf("the result is no JSON: %v", err)
	}
	if err := w.schema.Validate(doc); err != nil {
		w.t.Errorf("the result does not match its schema: %v", err)
	}
	r, err := claimcheck.DecodeResult(blob.Body)
	if err != nil {
		w.t.Fatalf("DecodeResult() = %v", err)
	}
	checkSilent(w.t, "result.detail", r.Detail)
	return r, true
}

// requests is how many requests about a document reached the model's deployments, refused ones too; calls is how many of
// them it ran.
func (w *world) requests(body string) int { return len(w.model.Arrivals(sum(body))) }
func (w *world) calls(body string) int    { return w.model.CallsOf(sum(body)) }

// reads is how many requests for the content of documents and results storage has answered.
func (w *world) reads() int { return w.blobs.Stats().Count(blobtest.OperationGetBlob) }

func sum(body string) string {
	h := sha256.Sum256([]byte(body))
	return hex.EncodeToString(h[:])
}

// estimate is what a request with this document counts against the limit.
func (w *world) estimate(body string) int {
	r := model.Request{System: prompt, Document: body, MaxCompletionTokens: maxOutput}
	return r.Estimate()
}

// fill takes what is left of a deployment's limit, as a request sent now would.
func (w *world) fill(name string) {
	w.t.Helper()
	l := w.deployments[name].Limiter
	r, ok := l.TryReserve("globex", l.Stats().Cap-l.Stats().Used)
	if !ok {
		w.t.Fatalf("TryReserve(rest of %s) = false", name)
	}
	r.Sent()
	r.Settle()
}
