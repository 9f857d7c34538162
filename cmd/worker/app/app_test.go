package app_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/go-cmp/cmp"

	"millrace/claimcheck"
	"millrace/cmd/worker/app"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/pipe"
	"millrace/test/sbtest"
)

const (
	queue = "doc-ingest"
	// keyed is the account of the connection string, other and store are reached with an identity.
	keyed, other, store = "keyed", "other", "store"
	blobSuffix          = ".blob.core.windows.net"
	modelHost           = "acme.openai.azure.com"
	keyedConnection     = "DefaultEndpointsProtocol=https;AccountName=" + keyed + ";AccountKey=" + blobtest.DevKey + ";EndpointSuffix=core.windows.net"

	canaryText = "CANARY-TEXT"
	canaryKey  = "CANARY-KEY"
)

const catalogYAML = `
version: "1"
tenants:
  acme: {team: search, containers: ["https://keyed.blob.core.windows.net/inbox", "https://other.blob.core.windows.net/inbox"]}
deployments:
  main: {endpoint: "https://acme.openai.azure.com", deployment: gpt, tpm: 10000, api_key_file: "%s"}
  spare: {endpoint: "https://acme.openai.azure.com", deployment: gpt-spare, tpm: 1000, api_key_file: "%[1]s"}
aliases:
  summarize: {kind: chat, deployments: [main], prompt_file: prompt.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}
  wide: {kind: chat, deployments: [main, spare], prompt_file: prompt.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}
`

// writeCatalog returns the path of a catalog whose deployments read their key from a file.
func writeCatalog(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path, key := filepath.Join(dir, "catalog.yaml"), filepath.Join(dir, "model.key")
	for file, content := range map[string]string{
		path: fmt.Sprintf(catalogYAML, key), key: canaryKey + "\n", filepath.Join(dir, "prompt.md"): "Summarise.",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// settings are those of a worker that could run; change replaces some of them.
func settings(catalog string, change map[string]string) func(string) (string, bool) {
	all := map[string]string{
		"SERVICEBUS_CONNECTION_STRING": "Endpoint=sb://bus.test/;SharedAccessKeyName=k;SharedAccessKey=" + canaryKey + ";UseDevelopmentEmulator=true",
		"MILLRACE_QUEUE":               queue, "MILLRACE_CATALOG": catalog, "MILLRACE_RESULTS": "https://" + store + blobSuffix + "/results",
		"MILLRACE_SLOTS": "4", "MILLRACE_LOG_LEVEL": "debug", "MILLRACE_LISTEN": "off",
	}
	for name, value := range change {
		all[name] = value
	}
	return func(name string) (string, bool) { v, ok := all[name]; return v, ok && v != "" }
}

type identity struct{}

func (identity) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: canaryKey, ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// process is one worker process in a bubble, with everything around it.
type process struct {
	t     *testing.T
	bus   *sbtest.Server
	blobs *blobtest.Server
	model *modeltest.Server
	logs  logs
	stop  func() error // ends Run and returns what it returned

	mu      sync.Mutex
	schemes map[string]string // account → how requests were authorised
}

// logs is a buffer that many goroutines may write to.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *logs) String() string              { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func start(t *testing.T, change map[string]string, m *modeltest.Server) *process {
	t.Helper()
	p := &process{t: t, bus: &sbtest.Server{}, model: m, schemes: map[string]string{}}
	p.model.APIKey = canaryKey
	p.blobs = &blobtest.Server{Token: canaryKey, Fault: p.note,
		Accounts: map[string]string{keyed: blobtest.DevKey, other: blobtest.DevKey, store: blobtest.DevKey}}
	if err := p.bus.CreateQueue(queue, nil); err != nil {
		t.Fatal(err)
	}
	for _, account := range []string{keyed, store} {
		p.blobs.Put(account, "results", "probe", nil, nil) // makes the container
		p.blobs.Remove(account, "results", "probe")
	}
	transport := p.serve()
	cfg, err := app.FromEnv(settings(writeCatalog(t), change))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = slog.New(slog.NewJSONHandler(&p.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return p.bus.Dial(ctx) }
	cfg.Transport, cfg.Credential = transport, identity{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cfg.Changed = make(chan struct{}) // watching a folder would stop the bubble's clock
	go func() { done <- app.Run(ctx, cfg) }()
	p.stop = sync.OnceValue(func() error { cancel(); return <-done })
	return p
}

// serve starts the HTTP services; what was started ends with the test, the worker first.
func (p *process) serve() *http.Transport {
	blobs, models := &pipe.Listener{}, &pipe.Listener{}
	blobHTTP := &http.Server{Handler: p.blobs}
	var serving sync.WaitGroup
	serving.Go(func() { _ = blobHTTP.Serve(blobs) })
	p.model.ServeOn(models)
	transport := &http.Transport{DialTLSContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		switch {
		case host == modelHost:
			return models.Dial(ctx)
		case strings.HasSuffix(host, blobSuffix):
			return blobs.Dial(ctx)
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}}
	p.t.Cleanup(func() {
		if err := p.stop(); err != nil {
			p.t.Errorf("Run() = %v, want nil", err)
		}
		transport.CloseIdleConnections()
		_ = blobHTTP.Close()
		if err := errors.Join(p.model.Close(), p.bus.Close()); err != nil {
			p.t.Errorf("close: %v", err)
		}
		serving.Wait()
	})
	return transport
}

// note remembers how a request to storage was authorised. It is no fault.
func (p *process) note(r blobtest.Request) *blobtest.Fault {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, ok := p.schemes[r.Account]; ok && before != scheme {
		scheme = before + " and " + scheme
	}
	p.schemes[r.Account] = scheme
	return nil
}

// submit stores a document in an account and sends its claim.
func (p *process) submit(account, name, body string) claimcheck.Claim {
	p.t.Helper()
	p.blobs.Put(account, "inbox", "acme/"+name, []byte(body), &blobtest.PutOptions{ContentType: "text/plain"})
	claim := claimcheck.Claim{Tenant: "acme", Model: "summarize", Blob: "https://" + account + blobSuffix + "/inbox/acme/" + name, CorrelationID: name}
	encoded, err := claim.Encode()
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(name, encoded)
	return claim
}

func (p *process) send(id string, body []byte) {
	p.t.Helper()
	if err := p.bus.Send(queue, sbtest.Message{ID: id, Body: body}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) awaitEmpty() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Hour)
	defer cancel()
	if err := p.bus.AwaitEmpty(ctx, queue); err != nil {
		p.t.Fatalf("queue: %v; it is %+v", err, p.bus.Stats(queue))
	}
}

// outcome is what a claim's result in an account says, "" if there is none.
func (p *process) outcome(account string, c claimcheck.Claim) claimcheck.Outcome {
	p.t.Helper()
	name, err := c.ResultName()
	if err != nil {
		p.t.Fatal(err)
	}
	blob, ok := p.blobs.Blob(account, "results", name)
	if !ok {
		return ""
	}
	r, err := claimcheck.DecodeResult(blob.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return r.Outcome
}

// TestRunKeepsSecretsOutOfLogs takes one message each down the ways that log most, at debug level, while every service
// repeats what it was sent.
func TestRunKeepsSecretsOutOfLogs(t *testing.T) {
	echo := []byte(`{"error":{"code":"X","message":"` + canaryText + ` ` + canaryKey + `"}}`)
	synctest.Test(t, func(t *testing.T) {
		p := start(t, nil, &modeltest.Server{Behave: func(c modeltest.Call) modeltest.Behaviour {
			switch {
			case strings.HasPrefix(c.User, "flaky") && c.Attempt == 1:
				return modeltest.Behaviour{Kind: modeltest.Reply, Status: 500, Body: echo}
			case strings.HasPrefix(c.User, "locked") && c.Attempt == 1:
				return modeltest.Behaviour{Kind: modeltest.Reply, Status: 401, Body: echo}
			case strings.HasPrefix(c.User, "busy") && c.Attempt == 1:
				return modeltest.Behaviour{Kind: modeltest.Reply, Status: 429, Body: echo}
			case strings.HasPrefix(c.User, "bad"):
				return modeltest.Behaviour{Kind: modeltest.Reply, Status: 400, Body: echo}
			}
			return modeltest.Behaviour{}
		}})
		want := map[string]claimcheck.Outcome{"good": "succeeded", "flaky": "succeeded", "locked": "succeeded", "busy": "succeeded", "bad": "rejected"}
		claims := map[string]claimcheck.Claim{}
		for name := range want {
			claims[name] = p.submit(other, name+".txt", name+" "+canaryText)
		}
		p.send("poison", []byte(`{"version":"1","tenant":"acme","model":"summarize","correlation_id":"c","blob":"https://other.blob.core.windows.net/inbox/acme/a?sig=`+canaryKey+`"}`))
		p.awaitEmpty()
		if err := p.stop(); err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		for name, outcome := range want {
			if got := p.outcome(store, claims[name]); got != outcome {
				t.Errorf("outcome of %s = %q, want %q", name, got, outcome)
			}
		}
		if s := p.bus.Stats(queue); s.Completed != len(want) || s.DeadLettered != 1 || s.Abandoned != 0 {
			t.Errorf("completed %d, dead-lettered %d, abandoned %d, want %d, 1, 0", s.Completed, s.DeadLettered, s.Abandoned, len(want))
		}
		for _, m := range p.bus.Peek(queue+"/$DeadLetterQueue", 10) {
			if m.DeadLetterReason() != "forbidden_reference" || strings.Contains(m.DeadLetterErrorDescription(), "CANARY") {
				t.Errorf("dead letter = %s: %s, want forbidden_reference without the signature", m.DeadLetterReason(), m.DeadLetterErrorDescription())
			}
		}
		logged := p.logs.String()
		for _, line := range []string{`"msg":"worker started"`, `"msg":"message held"`, `"msg":"message settled"`, `"msg":"worker stopped"`, `"answered":4`, `"failed":1`, `"poison":1`} {
			if !strings.Contains(logged, line) {
				t.Errorf("no log line has %s", line)
			}
		}
		for line := range strings.Lines(logged) {
			if strings.Contains(line, "CANARY") || strings.Contains(line, blobtest.DevKey) {
				t.Errorf("a log line repeats a secret or a document: %s", line)
			}
		}
	})
}

// TestRunFinishesWhatHasStarted stops a process in the middle of a call.
func TestRunFinishesWhatHasStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, nil, &modeltest.Server{Latency: func(int, int) time.Duration { return 20 * time.Second }})
		claim := p.submit(other, "a.txt", "a")
		if err := p.model.AwaitCalls(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := p.stop(); err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		if took := time.Since(began); took < 20*time.Second || took > 25*time.Second {
			t.Errorf("the drain took %v, want the 20s of the call", took)
		}
		s := p.bus.Stats(queue)
		if p.outcome(store, claim) != claimcheck.OutcomeSucceeded || s.Completed != 1 || s.Deliveries != 1 || s.Receivers != 0 {
			t.Errorf("outcome %q, completed %d, deliveries %d, receivers left %d, want succeeded, 1, 1, 0",
				p.outcome(store, claim), s.Completed, s.Deliveries, s.Receivers)
		}
		sum := sha256.Sum256([]byte("a"))
		if got := p.model.CallsOf(hex.EncodeToString(sum[:])); got != 1 {
			t.Errorf("calls = %d, want 1", got)
		}
	})
}

// TestRunOpensStorage: the account of the connection string is opened with its key and no other ever is, however the results
// container is named.
func TestRunOpensStorage(t *testing.T) {
	const key, token = "SharedKey", "Bearer"
	for _, tc := range []struct {
		name, connection, results string
		documents, writes         string // accounts
		want                      map[string]string
	}{
		{"identity alone", "", "https://store.blob.core.windows.net/results", other, store, map[string]string{other: token, store: token}},
		{"a name in the connection's account", keyedConnection, "results", other, keyed, map[string]string{other: token, keyed: key}},
		{"documents and results with the key", keyedConnection, "results", keyed, keyed, map[string]string{keyed: key}},
		{"a URL in the connection's account", keyedConnection, "https://KEYED.blob.core.windows.net:443/results/", other, keyed, map[string]string{other: token, keyed: key}},
		{"a URL elsewhere", keyedConnection, "https://store.blob.core.windows.net/results", keyed, store, map[string]string{keyed: key, store: token}},
		{"an endpoint of its own", keyedConnection + ";BlobEndpoint=https://keyed.blob.core.windows.net/", "results", other, keyed, map[string]string{other: token, keyed: key}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, map[string]string{"AZURE_STORAGE_CONNECTION_STRING": tc.connection, "MILLRACE_RESULTS": tc.results}, &modeltest.Server{})
				claim := p.submit(tc.documents, "a.txt", "a")
				p.awaitEmpty()
				if err := p.stop(); err != nil {
					t.Errorf("Run() = %v, want nil", err)
				}
				if got := p.outcome(tc.writes, claim); got != claimcheck.OutcomeSucceeded {
					t.Errorf("outcome in %s = %q, want succeeded", tc.writes, got)
				}
				if diff := cmp.Diff(tc.want, p.schemes); diff != "" {
					t.Errorf("authorization by account (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestRunRefusesConfiguration: a mistake is found before the first message, says where it is, and repeats no secret.
func TestRunRefusesConfiguration(t *testing.T) {
	good := writeCatalog(t)
	bad := filepath.Join(t.TempDir(), "catalog.yaml")
	if err := os.WriteFile(bad, []byte("version: \"1\"\nkey: "+canaryKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, catalog string
		change        map[string]string
		want          string
	}{
		{"no catalog", filepath.Join(t.TempDir(), "none.yaml"), nil, "load catalog"},
		{"a bad catalog", bad, nil, "tenants"},
		{"results by name without an account", good, map[string]string{"MILLRACE_RESULTS": "results"}, "MILLRACE_RESULTS"},
		{"results as a connection string", good, map[string]string{"MILLRACE_RESULTS": "AccountName=a;AccountKey=" + canaryKey}, "MILLRACE_RESULTS"},
		{"results with a signature", good, map[string]string{"MILLRACE_RESULTS": "https://store.blob.core.windows.net/results?sig=" + canaryKey}, "results container"},
		{"results by a name that is none", good, map[string]string{"AZURE_STORAGE_CONNECTION_STRING": keyedConnection, "MILLRACE_RESULTS": "Results/" + canaryKey}, "results container"},
		{"results over http", good, map[string]string{"MILLRACE_RESULTS": "http://store.blob.core.windows.net/results"}, "use https"},
		{"results among the documents", good, map[string]string{"MILLRACE_RESULTS": "https://other.blob.core.windows.net/inbox"}, "results container"},
		{"a storage connection string that is none", good, map[string]string{"AZURE_STORAGE_CONNECTION_STRING": canaryKey}, "AZURE_STORAGE_CONNECTION_STRING"},
		{"a storage key that is none", good, map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=" + canaryKey + "!"}, "AZURE_STORAGE_CONNECTION_STRING"},
		{"a bus connection string that is none", good, map[string]string{"SERVICEBUS_CONNECTION_STRING": "Endpoint=sb://bus.test/;SharedAccessKey=" + canaryKey}, ""},
		{"no share for anybody", good, map[string]string{"MILLRACE_MAX_REPLICAS": "10000"}, "MILLRACE_MAX_REPLICAS"},
		{"a share too small for any document", good, map[string]string{"MILLRACE_MAX_REPLICAS": "99"}, "MILLRACE_MAX_REPLICAS"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := app.FromEnv(settings(tc.catalog, tc.change))
			if err != nil {
				t.Fatal(err)
			}
			cfg.Logger, cfg.Credential = slog.New(slog.DiscardHandler), identity{}
			cfg.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") }
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err = app.Run(ctx, cfg)
			if !app.IsConfiguration(err) || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("Run() = %v, want a configuration error about %s", err, tc.want)
			}
			if strings.Contains(fmt.Sprintf("%v %+v", err, err), "CANARY") {
				t.Errorf("the error repeats a secret: %v", err)
			}
		})
	}
	if app.IsConfiguration(nil) || app.IsConfiguration(errors.New("something else")) {
		t.Error("IsConfiguration() = true for what is none")
	}
}

// TestRunRefusesBadSettings: a Config filled by hand is checked as one from the environment is.
func TestRunRefusesBadSettings(t *testing.T) {
	err := app.Run(t.Context(), app.Config{Slots: 1, Receivers: 1, Connections: 1, MaxReplicas: 1, Drain: time.Second})
	if !app.IsConfiguration(err) || !strings.Contains(err.Error(), "SERVICEBUS_CONNECTION_STRING") {
		t.Errorf("Run(no broker) = %v, want a configuration error about SERVICEBUS_CONNECTION_STRING", err)
	}
}
