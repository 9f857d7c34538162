package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/google/go-cmp/cmp"

	"millrace/internal/model"
	"millrace/test/modeltest"
)

func key() (string, error) { return "key-1\n", nil }

// newClient returns a client for deployment gpt behind handler, on a real loopback connection.
func newClient(t testing.TB, handler http.Handler, d model.Deployment) *model.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	d.Endpoint = server.URL + d.Endpoint
	d.Name = "gpt"
	if d.Key == nil && d.Credential == nil {
		d.Key = key
	}
	c, err := model.New(d, nil)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func request(document string) model.Request {
	return model.Request{System: "Summarise.", Document: document, MaxCompletionTokens: 100}
}

func failure(t testing.TB, err error) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		t.Fatalf("Complete = %v, want a *model.Error", err)
	}
	return e
}

func TestClientComplete(t *testing.T) {
	for _, version := range []string{"", "v1", "2024-10-21", "2025-01-01-preview"} {
		t.Run("version "+version, func(t *testing.T) {
			service := &modeltest.Server{
				APIKey:      "key-1",
				Deployments: map[string]modeltest.Deployment{"gpt": {Model: "gpt-4o-2024-08-06", TPM: 100_000}},
			}
			c := newClient(t, service, model.Deployment{APIVersion: version})
			var sent atomic.Int32
			r := request("A document of some length.")
			r.Sent = func() { sent.Add(1) }
			got, err := c.Complete(t.Context(), r)
			if err != nil {
				t.Fatalf("Complete = %v", err)
			}
			if got.Kind != model.Answered || got.Text == "" || got.Model != "gpt-4o-2024-08-06" || got.Deployment != "gpt" {
				t.Errorf("Complete = %+v, want an answer of gpt-4o-2024-08-06", got)
			}
			if !got.Usage.Reported || got.Usage.Input != r.Estimate()-r.MaxCompletionTokens {
				t.Errorf("Usage = %+v, want %d input tokens", got.Usage, r.Estimate()-r.MaxCompletionTokens)
			}
			if charged := service.Stats().Charged; charged != r.Estimate() {
				t.Errorf("Estimate() = %d, want what the service charged, %d", r.Estimate(), charged)
			}
			if got.Limits.LimitTokens != 100_000 {
				t.Errorf("Limits = %+v, want a limit of 100000 tokens", got.Limits)
			}
			if sent.Load() != 1 || service.Stats().Requests != 1 {
				t.Errorf("Sent was called %d times for %d requests, want 1 and 1", sent.Load(), service.Stats().Requests)
			}
		})
	}
}

func TestClientRequestOnTheWire(t *testing.T) {
	temperature, topP, seed := 0.0, 0.5, int64(7)
	whole := model.Request{
		Messages:            []json.RawMessage{[]byte(`{"role":"user","content":[{"type":"text","text":"hi"}]}`)},
		Tools:               []json.RawMessage{[]byte(`{"type":"function","function":{"name":"f"}}`)},
		ResponseFormat:      []byte(`{"type":"json_object"}`),
		MaxCompletionTokens: 5,
	}
	ours := request(`a "quoted" <b> ` + "\u2028" + ` 文`)
	ours.Temperature, ours.TopP, ours.Seed, ours.Stop = &temperature, &topP, &seed, []string{"END"}
	ours.Schema = &model.Schema{Name: "out", Raw: []byte(`{"type":"object"}`)}
	for _, tc := range []struct {
		name, endpoint, version string
		request                 model.Request
		wantURL, wantBody       string
	}{
		{"dated", "", "2024-10-21", ours, "/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
			`{"model":"gpt","max_completion_tokens":100,"temperature":0,"top_p":0.5,"seed":7,"stop":["END"],` +
				`"messages":[{"role":"system","content":"Summarise."},{"role":"user","content":"a \"quoted\" <b> \u2028 文"}],` +
				`"response_format":{"type":"json_schema","json_schema":{"name":"out","strict":true,"schema":{"type":"object"}}}}`},
		{"v1", "", "v1", whole, "/openai/v1/chat/completions",
			`{"model":"gpt","max_completion_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],` +
				`"tools":[{"type":"function","function":{"name":"f"}}],"response_format":{"type":"json_object"}}`},
		{"dated behind a gateway", "/team/", "2024-10-21", model.Request{Document: "x", MaxCompletionTokens: 1},
			"/team/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
			`{"model":"gpt","max_completion_tokens":1,"messages":[{"role":"user","content":"x"}]}`},
		{"v1 behind a gateway", "/team/openai/v1/", "", model.Request{Document: "x", MaxCompletionTokens: 1},
			"/team/openai/v1/chat/completions",
			`{"model":"gpt","max_completion_tokens":1,"messages":[{"role":"user","content":"x"}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var url string
			var got any
			c := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				url = r.URL.String()
				if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
					t.Errorf("request body: %v", err)
				}
				if k := r.Header.Values("Api-Key"); len(k) != 1 || k[0] != "key-1" || r.Header.Get("Authorization") != "" {
					t.Errorf("api-key = %q, authorization = %q, want key-1 alone", k, r.Header.Get("Authorization"))
				}
				reply(200, fenced)(w, r)
			}), model.Deployment{Endpoint: tc.endpoint, APIVersion: tc.version})
			if _, err := c.Complete(t.Context(), tc.request); err != nil {
				t.Fatalf("Complete = %v", err)
			}
			var want any
			if err := json.Unmarshal([]byte(tc.wantBody), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || url != tc.wantURL {
				t.Errorf("POST %s, want %s; body -want +got:\n%s", url, tc.wantURL, diff)
			}
		})
	}
}

// TestClientBehaviours runs every behaviour of the emulator through the real SDK.
func TestClientBehaviours(t *testing.T) {
	var behaviour modeltest.Behaviour
	service := &modeltest.Server{
		Deployments: map[string]modeltest.Deployment{"gpt": {TPM: 100_000}},
		Behave:      func(modeltest.Call) modeltest.Behaviour { return behaviour },
	}
	c := newClient(t, service, model.Deployment{})
	for _, tc := range []struct {
		name string
		b    modeltest.Behaviour
		kind string // of the answer with its reason, or of the error
		code string // of the error
		wait time.Duration
	}{
		{"answer", modeltest.Behaviour{}, "answered", "", 0},
		{"prompt filter", modeltest.Behaviour{Kind: modeltest.PromptFiltered}, "prompt_filtered", "", 0},
		{"output filter", modeltest.Behaviour{Kind: modeltest.OutputFiltered}, "output_filtered", "", 0},
		{"output filter, cut", modeltest.Behaviour{Kind: modeltest.OutputFilteredCut}, "output_filtered", "", 0},
		{"refusal", modeltest.Behaviour{Kind: modeltest.ModelRefusal}, "model_refused", "", 0},
		{"no choices", modeltest.Behaviour{Kind: modeltest.NoChoices}, "empty", "", 0},
		{"empty text", modeltest.Behaviour{Kind: modeltest.EmptyText}, "empty", "", 0},
		{"output limit", modeltest.Behaviour{Kind: modeltest.OutputLimit}, "truncated output_limit", "", 0},
		{"reasoning limit", modeltest.Behaviour{Kind: modeltest.ReasoningLimit}, "truncated reasoning_limit", "", 0},
		{"cut before", modeltest.Behaviour{Kind: modeltest.CutBefore}, "unavailable", "connection_lost", 0},
		{"cut within", modeltest.Behaviour{Kind: modeltest.CutWithin}, "unavailable", "connection_lost", 0},
		{"cut after", modeltest.Behaviour{Kind: modeltest.CutAfter}, "unavailable", "connection_lost", 0},
		{"bad gateway", modeltest.BadGateway(), "unavailable", "", 0},
		{"capacity", modeltest.Capacity(9 * time.Second), "throttled", "429", 9 * time.Second},
		{"throttled", modeltest.Throttled(http.Header{"Retry-After": {"7"}}), "throttled", "429", 7 * time.Second},
		{"quota", modeltest.InsufficientQuota(), "quota_exhausted", "insufficient_quota", 0},
		{"context length", modeltest.ContextLength(), "context_length", "context_length_exceeded", 0},
		{"no deployment", modeltest.DeploymentNotFound(), "misconfigured", "DeploymentNotFound", 0},
		{"unauthorized", modeltest.Unauthorized(), "misconfigured", "401", 0},
		{"forbidden", modeltest.Forbidden(), "misconfigured", "PermissionDenied", 0},
		{"image", modeltest.InvalidImage(), "invalid_media", "invalid_image_format", 0},
		{"internal", modeltest.ServerError(500), "unavailable", "500", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			behaviour = tc.b
			before := service.Stats().Requests
			answer, err := c.Complete(t.Context(), request(tc.name))
			if err == nil {
				if got := strings.TrimSpace(string(answer.Kind) + " " + string(answer.Reason)); got != tc.kind {
					t.Errorf("Complete = %s, want %s", got, tc.kind)
				}
			} else if e := failure(t, err); string(e.Kind) != tc.kind || e.Code != tc.code || e.RetryAfter != tc.wait || !e.Sent {
				t.Errorf("Complete = %v, sent %v, want %s, code %q, wait %v, sent", err, e.Sent, tc.kind, tc.code, tc.wait)
			}
			if n := service.Stats().Requests - before; n != 1 {
				t.Errorf("Complete made %d requests, want 1", n)
			}
		})
	}
}

func TestClientTooLarge(t *testing.T) {
	service := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"gpt": {TPM: 50}}}
	c := newClient(t, service, model.Deployment{})
	_, err := c.Complete(t.Context(), request("text"))
	if e := failure(t, err); e.Kind != model.TooLarge {
		t.Errorf("Complete = %v, want %s", err, model.TooLarge)
	}
}

func TestClientReadsKeyForEveryCall(t *testing.T) {
	service := &modeltest.Server{APIKey: "old"}
	current, readErr := "old", error(nil)
	c := newClient(t, service, model.Deployment{Key: func() (string, error) { return current, readErr }})
	if _, err := c.Complete(t.Context(), request("a")); err != nil {
		t.Fatalf("Complete with the old key = %v", err)
	}
	service.SetAPIKey("new")
	_, err := c.Complete(t.Context(), request("a"))
	if e := failure(t, err); e.Kind != model.Misconfigured || e.Status != 401 {
		t.Errorf("Complete with a rotated key = %v, want %s, status 401", err, model.Misconfigured)
	}
	current = "new"
	if _, err := c.Complete(t.Context(), request("a")); err != nil {
		t.Errorf("Complete with the new key = %v", err)
	}
	for _, tc := range []struct {
		key string
		err error
	}{{"", nil}, {" \n", nil}, {"two\nlines", nil}, {"ключ", nil}, {"", io.ErrUnexpectedEOF}} {
		current, readErr = tc.key, tc.err
		before := service.Stats().Requests
		_, err := c.Complete(t.Context(), request("a"))
		if e := failure(t, err); e.Kind != model.Misconfigured || e.Sent || service.Stats().Requests != before {
			t.Errorf("Complete with key %q, %v = %v, sent %v, want %s without a request", tc.key, tc.err, err, e.Sent, model.Misconfigured)
		}
	}
}

// identity is a credential whose token request goes over HTTP with the caller's context, as real ones do.
type identity struct {
	url string
	err error
	n   atomic.Int32
}

func (i *identity) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	i.n.Add(1)
	if i.err != nil {
		return azcore.AccessToken{}, i.err
	}
	if len(o.Scopes) != 1 || o.Scopes[0] != "https://cognitiveservices.azure.com/.default" {
		return azcore.AccessToken{}, fmt.Errorf("unexpected scopes %v", o.Scopes)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url, strings.NewReader("grant"))
	if err != nil {
		return azcore.AccessToken{}, err
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	return azcore.AccessToken{Token: "token-1", ExpiresOn: time.Now().Add(time.Hour)}, response.Body.Close()
}

func TestClientUsesTokens(t *testing.T) {
	for _, version := range []string{"v1", "2024-10-21"} {
		t.Run(version, func(t *testing.T) {
			entra := httptest.NewServer(reply(200, "{}"))
			defer entra.Close()
			who := &identity{url: entra.URL}
			var sent atomic.Int32
			service := &modeltest.Server{Token: func(bearer string) bool { return bearer == "token-1" }}
			c := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				service.ServeHTTP(w, r)
			}), model.Deployment{APIVersion: version, Credential: who})
			for range 3 {
				r := request("a")
				r.Sent = func() { sent.Add(1) }
				if _, err := c.Complete(t.Context(), r); err != nil {
					t.Fatalf("Complete = %v", err)
				}
			}
			if who.n.Load() != 1 || sent.Load() != 3 {
				t.Errorf("3 calls took %d tokens and called Sent %d times, want 1 and 3", who.n.Load(), sent.Load())
			}
		})
	}
}

func TestClientTokenFailure(t *testing.T) {
	rejected := func(status int) error {
		return fmt.Errorf("chain: %w", &azidentity.AuthenticationFailedError{RawResponse: &http.Response{
			StatusCode: status, Body: io.NopCloser(strings.NewReader("canary"))}})
	}
	for _, tc := range []struct {
		name string
		err  error
		want model.ErrorKind
		code string
	}{
		{"rejected", rejected(401), model.Misconfigured, "credential_rejected"},
		{"identity service down", rejected(503), model.Unavailable, "credential"},
		{"identity service throttles", rejected(429), model.Unavailable, "credential"},
		{"identity service unreachable", &azidentity.AuthenticationFailedError{}, model.Unavailable, "credential"},
		{"network", &net.DNSError{Err: "no such host", Name: "login"}, model.Unavailable, "credential"},
		{"none here", azidentity.NewCredentialUnavailableError("no identity canary"), model.Misconfigured, "credential"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			service := &modeltest.Server{}
			c := newClient(t, service, model.Deployment{Credential: &identity{err: tc.err}})
			r := request("a")
			r.Sent = func() { t.Error("Sent was called without a token") }
			_, err := c.Complete(t.Context(), r)
			e := failure(t, err)
			if e.Kind != tc.want || e.Code != tc.code || e.Sent || service.Stats().Requests != 0 {
				t.Errorf("Complete = %v, sent %v, want %s, code %s, no request", err, e.Sent, tc.want, tc.code)
			}
			if text := fmt.Sprintf("%v %+v %v", err, err, errors.Unwrap(err)); strings.Contains(text, "canary") {
				t.Errorf("error text holds the identity library's: %s", text)
			}
		})
	}
}

func TestClientFollowsNoRedirect(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, d := range []model.Deployment{{}, {Credential: &identity{url: other.URL}}} {
		c := newClient(t, http.RedirectHandler(other.URL, http.StatusTemporaryRedirect), d)
		before := elsewhere.Load()
		if d.Credential != nil {
			before++ // the token request
		}
		_, err := c.Complete(t.Context(), request("a"))
		if e := failure(t, err); e.Kind != model.Misconfigured || e.Status != 307 || elsewhere.Load() != before {
			t.Errorf("Complete = %v with %d requests elsewhere, want %s, status 307, %d", err, elsewhere.Load(), model.Misconfigured, before)
		}
	}
}

func TestClientBoundsTheResponse(t *testing.T) {
	flood := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			chunk := []byte(strings.Repeat(" ", 1<<20))
			for range 10 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}
	}
	for _, tc := range []struct {
		status int
		want   model.ErrorKind
		code   string
	}{
		{200, model.Unavailable, "response_too_large"},
		{400, model.Unavailable, "response_too_large"},
		{401, model.Misconfigured, ""},
		{429, model.Throttled, ""},
		{500, model.Unavailable, ""},
	} {
		for _, d := range []model.Deployment{{}, {Credential: &identity{url: "http://127.0.0.1:1"}}} {
			if d.Credential != nil {
				entra := httptest.NewServer(reply(200, "{}"))
				t.Cleanup(entra.Close)
				d.Credential = &identity{url: entra.URL}
			}
			c := newClient(t, flood(tc.status), d)
			_, err := c.Complete(t.Context(), request("a"))
			if e := failure(t, err); e.Kind != tc.want || e.Code != tc.code || !e.Sent {
				t.Errorf("Complete(%d and 10 MiB) = %v, sent %v, want %s, code %q", tc.status, err, e.Sent, tc.want, tc.code)
			}
		}
	}
}

func TestClientUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := listener.Addr().String()
	_ = listener.Close()
	plain := httptest.NewServer(reply(200, fenced))
	defer plain.Close()
	secure := httptest.NewTLSServer(reply(200, fenced))
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer secure.Close()
	for _, tc := range []struct{ name, endpoint, code string }{
		{"refused", "http://" + refused, "connection_refused"},
		{"unknown certificate", secure.URL, "tls"},
		{"plain where TLS is expected", strings.Replace(plain.URL, "http:", "https:", 1), "tls"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := model.New(model.Deployment{Endpoint: tc.endpoint, Name: "gpt", Key: key}, nil)
			if err != nil {
				t.Fatalf("New = %v", err)
			}
			r := request("a")
			r.Sent = func() { t.Error("Sent was called without a connection") }
			_, err = c.Complete(t.Context(), r)
			if e := failure(t, err); e.Kind != model.Unavailable || e.Code != tc.code || e.Sent {
				t.Errorf("Complete = %v, sent %v, want %s, code %s, not sent", err, e.Sent, model.Unavailable, tc.code)
			}
			if text := errors.Unwrap(err).Error(); strings.Contains(text, "api-version") || strings.Contains(text, "/openai/") {
				t.Errorf("cause holds the URL: %s", text)
			}
		})
	}
}

func TestClientRefusesBadRequests(t *testing.T) {
	service := &modeltest.Server{}
	c := newClient(t, service, model.Deployment{})
	raw := func(s ...string) (list []json.RawMessage) {
		for _, one := range s {
			list = append(list, json.RawMessage(one))
		}
		return list
	}
	for _, tc := range []struct {
		name    string
		request model.Request
		want    model.ErrorKind
		param   string
	}{
		{"no limit", model.Request{Document: "a"}, model.Misconfigured, "max_completion_tokens"},
		{"no document", model.Request{MaxCompletionTokens: 1}, model.RequestParameter, "messages"},
		{"no messages", model.Request{MaxCompletionTokens: 1, Messages: raw()[:0:0]}, model.RequestParameter, "messages"},
		{"bad message", model.Request{MaxCompletionTokens: 1, Messages: raw(`{"role":`)}, model.RequestParameter, "messages"},
		{"bad tool", model.Request{MaxCompletionTokens: 1, Messages: raw(`{}`), Tools: raw(`7`)}, model.RequestParameter, "tools"},
		{"bad format", model.Request{MaxCompletionTokens: 1, Messages: raw(`{}`), ResponseFormat: []byte(`[]`)}, model.RequestParameter, "response_format"},
		{"bad schema", model.Request{MaxCompletionTokens: 1, Document: "a", Schema: &model.Schema{Name: "x"}}, model.Misconfigured, "response_format"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := c.Complete(t.Context(), tc.request)
			if e := failure(t, err); e.Kind != tc.want || e.Param != tc.param || e.Sent || service.Stats().Requests != 0 {
				t.Errorf("Complete = %v, want %s, param %s, no request", err, tc.want, tc.param)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	token := &identity{}
	for _, tc := range []struct {
		name string
		d    model.Deployment
		http bool
		ok   bool
	}{
		{"https", model.Deployment{Endpoint: "https://a.openai.azure.com", Name: "n", Key: key}, false, true},
		{"https with a token", model.Deployment{Endpoint: "https://a.openai.azure.com/", Name: "n", Credential: token}, false, true},
		{"loopback http", model.Deployment{Endpoint: "http://localhost:8080", Name: "n", Key: key}, false, true},
		{"loopback http with a token", model.Deployment{Endpoint: "http://[::1]:8080", Name: "n", Credential: token}, false, true},
		{"http allowed", model.Deployment{Endpoint: "http://model:8080", Name: "n", Key: key}, true, true},
		{"http", model.Deployment{Endpoint: "http://model:8080", Name: "n", Key: key}, false, false},
		{"http with a token", model.Deployment{Endpoint: "http://model:8080", Name: "n", Credential: token}, true, false},
		{"other scheme", model.Deployment{Endpoint: "ftp://model", Name: "n", Key: key}, true, false},
		{"no endpoint", model.Deployment{Name: "n", Key: key}, true, false},
		{"query", model.Deployment{Endpoint: "https://a?x=1", Name: "n", Key: key}, true, false},
		{"user", model.Deployment{Endpoint: "https://u:p@a", Name: "n", Key: key}, true, false},
		{"path of the API", model.Deployment{Endpoint: "https://a/openai/deployments/x", Name: "n", Key: key}, true, false},
		{"no name", model.Deployment{Endpoint: "https://a", Key: key}, true, false},
		{"no key", model.Deployment{Endpoint: "https://a", Name: "n"}, true, false},
		{"key and token", model.Deployment{Endpoint: "https://a", Name: "n", Key: key, Credential: token}, true, false},
		{"odd version", model.Deployment{Endpoint: "https://a", Name: "n", Key: key, APIVersion: "v2"}, true, false},
		{"old version", model.Deployment{Endpoint: "https://a", Name: "n", Key: key, APIVersion: "2024-06-01"}, true, false},
		{"no such day", model.Deployment{Endpoint: "https://a", Name: "n", Key: key, APIVersion: "2025-13-01"}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := model.New(tc.d, &model.Options{AllowHTTP: tc.http})
			if (err == nil) != tc.ok {
				t.Errorf("New(%+v, AllowHTTP %v) = %v, want success %v", tc.d.Endpoint, tc.http, err, tc.ok)
			}
			if err != nil && (strings.Contains(err.Error(), "u:p") || strings.Contains(err.Error(), "x=1")) {
				t.Errorf("New error holds the URL: %v", err)
			}
		})
	}
}

// TestErrorHoldsNoSecret puts a canary wherever a secret may be and looks at every way an error is printed.
func TestErrorHoldsNoSecret(t *testing.T) {
	const canary = "CANARY"
	body := func(status int) http.HandlerFunc {
		return reply(status, `{"error":{"message":"`+canary+`","code":"the text `+canary+`","param":"`+canary+` in prose","type":"`+canary+`"},"`+canary+`":1}`)
	}
	cut := func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	for _, handler := range []http.HandlerFunc{body(200), body(400), body(401), body(404), body(429), body(500), cut, reply(502, "<html>"+canary)} {
		c := newClient(t, handler, model.Deployment{Key: func() (string, error) { return canary, nil }})
		_, err := c.Complete(t.Context(), model.Request{System: canary, Document: canary, MaxCompletionTokens: 5})
		var b strings.Builder
		fmt.Fprintf(&b, "%v %+v %#v %q", err, err, err, err)
		for e := err; e != nil; e = errors.Unwrap(e) {
			b.WriteString(e.Error())
		}
		slog.New(slog.NewTextHandler(&b, nil)).Error("call", "err", err)
		slog.New(slog.NewJSONHandler(&b, nil)).Error("call", "err", err)
		if strings.Contains(b.String(), canary) {
			t.Errorf("an error shows a secret: %s", b.String())
		}
	}
}

func TestEstimate(t *testing.T) {
	for _, tc := range []struct {
		system, document string
		max, want        int
	}{
		{"", "", 0, 0}, {"", "a", 10, 11}, {"ab", "cd", 10, 11}, {"ab", "cde", 10, 12}, {"", "文文文文", 0, 1}, {"", "👍👍👍👍👍", 0, 2},
	} {
		if got := model.Estimate(tc.system, tc.document, tc.max); got != tc.want {
			t.Errorf("Estimate(%q, %q, %d) = %d, want %d", tc.system, tc.document, tc.max, got, tc.want)
		}
	}
	whole := model.Request{Messages: []json.RawMessage{[]byte(`{"role":"user","content":"abcdefgh"}`)}, MaxCompletionTokens: 3}
	if got := whole.Estimate(); got != 9+3 {
		t.Errorf("Estimate() of raw messages = %d, want 12", got)
	}
}

func BenchmarkComplete(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("document=%dKiB", size>>10), func(b *testing.B) {
			c := newClient(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				reply(200, fenced)(w, r)
			}), model.Deployment{APIVersion: "2024-10-21"})
			r := request(strings.Repeat("0123456789abcdef", size/16))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Complete(context.Background(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
