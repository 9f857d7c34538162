package infer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"millrace/claimcheck"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/worker"
)

const (
	docsDep  = "blob:" + docs
	storeDep = "results:" + store
)

// echo puts the document into the text of an error, as services and gateways do.
const echo = `{"error":{"code":"X","message":"you sent ` + canaryText + ` with key ` + canaryKey + `"}}`

// TestHandlerModelFailures holds what is wrong with a deployment to that deployment: no result, a verdict that names it, and
// quota as the service will have counted it.
func TestHandlerModelFailures(t *testing.T) {
	unreachable := func(err error) func(context.Context, string) error {
		return func(_ context.Context, host string) error {
			if host == modelHost {
				return err
			}
			return nil
		}
	}
	for _, tc := range []struct {
		name       string
		options    options
		kind       worker.Kind
		retryAfter time.Duration
		paused     time.Duration // the limiter, from the failure on
		charged    bool          // the request stays in the window
		requests   int
		after      time.Duration // of virtual time
	}{
		{name: "429, retry-after-ms", options: options{behave: replies(429, echo, "retry-after-ms", "1500", "retry-after", "2")},
			kind: worker.Throttled, retryAfter: 1500 * time.Millisecond, paused: 1500 * time.Millisecond, requests: 1},
		{name: "429, retry-after", options: options{behave: replies(429, echo, "retry-after", "7")},
			kind: worker.Throttled, retryAfter: 7 * time.Second, paused: 7 * time.Second, requests: 1},
		{name: "429, a date", options: options{behave: replies(429, echo, "Date", "Sat, 01 Jan 2000 00:00:00 GMT", "retry-after", "Sat, 01 Jan 2000 00:00:09 GMT")},
			kind: worker.Throttled, retryAfter: 9 * time.Second, paused: 9 * time.Second, requests: 1},
		{name: "429, no word about when", options: options{behave: replies(429, echo)}, kind: worker.Throttled, requests: 1},
		{name: "429 of a gateway", options: options{behave: replies(429, `{"statusCode":429,"message":"`+canaryText+`"}`, "retry-after", "12")},
			kind: worker.Throttled, retryAfter: 12 * time.Second, paused: 12 * time.Second, requests: 1},
		{name: "429, a day for a small request", options: options{behave: replies(429, echo, "retry-after", "86400", "x-ratelimit-limit-tokens", "100000")},
			kind: worker.Throttled, retryAfter: 24 * time.Hour, paused: 24 * time.Hour, requests: 1},
		{name: "429, no capacity", options: options{behave: always(modeltest.Capacity(3 * time.Second))},
			kind: worker.Throttled, retryAfter: 3 * time.Second, paused: 3 * time.Second, requests: 1},
		{name: "a 200 that is a 429", options: options{behave: replies(200, `{"error":{"code":"429","message":"`+canaryText+`"}}`, "retry-after", "4")},
			kind: worker.Throttled, retryAfter: 4 * time.Second, paused: 4 * time.Second, requests: 1},

		{name: "insufficient quota", options: options{behave: always(modeltest.InsufficientQuota())}, kind: worker.Misconfigured, requests: 1},
		{name: "401", options: options{behave: always(modeltest.Unauthorized())}, kind: worker.Misconfigured, charged: true, requests: 1},
		{name: "403", options: options{behave: always(modeltest.Forbidden())}, kind: worker.Misconfigured, charged: true, requests: 1},
		{name: "403, a page of HTML", options: options{behave: replies(403, "<html>"+canaryText, "Content-Type", "text/html")},
			kind: worker.Misconfigured, charged: true, requests: 1},
		{name: "no such deployment", options: options{models: map[string]modeltest.Deployment{"another": {}}}, kind: worker.Misconfigured, charged: true},
		{name: "a parameter of the catalog", options: options{models: map[string]modeltest.Deployment{mainName: {ReasoningTokens: 10}}},
			kind: worker.Misconfigured, charged: true, requests: 1},
		{name: "a redirect", options: options{behave: replies(307, "", "Location", "https://evil.example/"+canaryKey)},
			kind: worker.Misconfigured, charged: true, requests: 1},
		{name: "no key", options: options{key: func() (string, error) { return "", errors.New("no such file") }}, kind: worker.Misconfigured},
		{name: "half a key", options: options{key: func() (string, error) { return canaryKey + "\n" + canaryKey, nil }}, kind: worker.Misconfigured},

		{name: "500", options: options{behave: always(modeltest.ServerError(500))}, kind: worker.Infrastructure, charged: true, requests: 1},
		{name: "503 with a wait", options: options{behave: replies(503, echo, "retry-after", "20")},
			kind: worker.Infrastructure, retryAfter: 20 * time.Second, charged: true, requests: 1},
		{name: "503 with a wait of hours", options: options{behave: replies(503, echo, "retry-after", "7200")},
			kind: worker.Infrastructure, retryAfter: time.Minute, charged: true, requests: 1},
		{name: "502, a page of HTML", options: options{behave: always(modeltest.BadGateway())}, kind: worker.Infrastructure, charged: true, requests: 1},
		{name: "200, a page of HTML", options: options{behave: replies(200, "<html>"+canaryText, "Content-Type", "text/html")},
			kind: worker.Infrastructure, charged: true, requests: 1},
		{name: "cut before the model ran", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.CutBefore})},
			kind: worker.Infrastructure, charged: true, requests: 1},
		{name: "cut within the answer", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.CutWithin})},
			kind: worker.Infrastructure, charged: true, requests: 1},
		{name: "cut after the model ran", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.CutAfter})},
			kind: worker.Infrastructure, charged: true, requests: 1},
		{name: "no answer", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.Hang})},
			kind: worker.Infrastructure, requests: 1, after: 5 * time.Minute}, // the charge has left the window by then
		{name: "no such host", options: options{dial: unreachable(&net.DNSError{Err: "no such host", Name: modelHost, IsNotFound: true})},
			kind: worker.Infrastructure},
		{name: "refused connection", options: options{dial: unreachable(errors.New("connection refused"))}, kind: worker.Infrastructure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, &tc.options, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				began := time.Now()
				v := w.handle(t.Context(), claim)
				took := time.Since(began)
				if v.Kind != tc.kind || v.Dependency != mainDep || v.RetryAfter != tc.retryAfter || v.Err == nil {
					t.Errorf("Handle() = %v, dependency %q, retry after %v, err %v, want %v, %q, %v", v.Kind, v.Dependency, v.RetryAfter, v.Err,
						tc.kind, mainDep, tc.retryAfter)
				}
				if took != tc.after {
					t.Errorf("Handle() took %v, want %v", took, tc.after)
				}
				if _, ok := w.result(claim); ok {
					t.Error("there is a result, want none: nothing is wrong with the document")
				}
				if got := w.requests(text("a")); got != tc.requests {
					t.Errorf("requests to the model = %d, want %d", got, tc.requests)
				}
				s := w.deployments["main"].Limiter.Stats()
				want := 0
				if tc.charged {
					want = w.estimate(text("a"))
				}
				if s.Used != want || s.InFlight != 0 {
					t.Errorf("limiter: %d tokens used, %d in flight, want %d, 0", s.Used, s.InFlight, want)
				}
				if paused := s.PausedUntil.Sub(began); tc.paused > 0 && paused != tc.paused {
					t.Errorf("the limiter is paused for %v, want %v", paused, tc.paused)
				} else if tc.paused == 0 && s.PausedUntil.After(began) {
					t.Errorf("the limiter is paused until %v, want no pause", s.PausedUntil)
				}
			})
		})
	}
}

// TestHandlerServiceTPM lets the service's own meter refuse: somebody else has used the limit up. The request is sent again
// when the service said, and not before.
func TestHandlerServiceTPM(t *testing.T) {
	bubble(t, &options{models: map[string]modeltest.Deployment{mainName: {TPM: 1000}}}, func(t *testing.T, w *world) {
		claim := w.put("a.txt", text("a"), nil)
		w.model.Spend(mainName, 1000)
		v := w.handle(t.Context(), claim)
		if v.Kind != worker.Throttled || v.RetryAfter != time.Minute {
			t.Fatalf("Handle() = %v after %v, want throttled for a minute", v.Kind, v.RetryAfter)
		}
		began := time.Now()
		if v := w.handle(t.Context(), claim); v.Kind != worker.Answered || time.Since(began) != time.Minute {
			t.Errorf("Handle() again = %v after %v, want an answer after the pause of a minute", v.Kind, time.Since(began))
		}
		if got := w.requests(text("a")); got != 2 {
			t.Errorf("requests to the model = %d, want 2", got)
		}
	})
}

// on is a fault for requests with one operation on one account.
func on(account string, op blobtest.Operation, f blobtest.Fault) func(blobtest.Request) *blobtest.Fault {
	return func(r blobtest.Request) *blobtest.Fault {
		if r.Account != account || r.Operation != op {
			return nil
		}
		return &f
	}
}

// TestHandlerStorageFailures tells faults of an account from faults of a document, before anything is paid for.
func TestHandlerStorageFailures(t *testing.T) {
	const get = blobtest.OperationGetBlob
	unreachable := func(host string) func(context.Context, string) error {
		return func(_ context.Context, h string) error {
			if h == host {
				return &net.DNSError{Err: "no such host", Name: h, IsNotFound: true}
			}
			return nil
		}
	}
	mismatch := blobtest.Fault{Status: 403, Code: "AuthorizationPermissionMismatch", Message: canaryText + " " + canaryToken}
	for _, tc := range []struct {
		name       string
		options    options
		dependency string
		kind       worker.Kind
	}{
		{"documents: 403", options{fault: on(docs, get, mismatch)}, docsDep, worker.Misconfigured},
		{"documents: 401", options{fault: on(docs, get, blobtest.Fault{Status: 401, Code: "InvalidAuthenticationInfo"})}, docsDep, worker.Misconfigured},
		{"documents: no such container", options{fault: on(docs, get, blobtest.Fault{Status: 404, Code: "ContainerNotFound"})}, docsDep, worker.Misconfigured},
		{"documents: container being deleted", options{fault: on(docs, get, blobtest.Fault{Status: 409, Code: "ContainerBeingDeleted"})}, docsDep, worker.Infrastructure},
		{"documents: 500", options{fault: on(docs, get, blobtest.Fault{Status: 500, Code: "OperationTimedOut"})}, docsDep, worker.Infrastructure},
		{"documents: 503", options{fault: on(docs, get, blobtest.Fault{Status: 503, Code: "ServerBusy"})}, docsDep, worker.Infrastructure},
		{"documents: cut", options{fault: on(docs, get, blobtest.Fault{Cut: true})}, docsDep, worker.Infrastructure},
		{"documents: cut within", options{fault: on(docs, get, blobtest.Fault{CutBody: 5})}, docsDep, worker.Infrastructure},
		{"documents: no answer", options{fault: on(docs, get, blobtest.Fault{Hang: true})}, docsDep, worker.Infrastructure},
		{"documents: no such host", options{dial: unreachable(docsHost)}, docsDep, worker.Infrastructure},
		{"results: 403", options{fault: on(store, get, mismatch)}, storeDep, worker.Misconfigured},
		{"results: no such container", options{fault: on(store, get, blobtest.Fault{Status: 404, Code: "ContainerNotFound"})}, storeDep, worker.Misconfigured},
		{"results: 503", options{fault: on(store, get, blobtest.Fault{Status: 503})}, storeDep, worker.Infrastructure},
		{"results: no answer", options{fault: on(store, get, blobtest.Fault{Hang: true})}, storeDep, worker.Infrastructure},
		{"results: no such host", options{dial: unreachable(storeHost)}, storeDep, worker.Infrastructure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, &tc.options, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				v := w.handle(t.Context(), claim)
				if v.Kind != tc.kind || v.Dependency != tc.dependency || v.Err == nil {
					t.Errorf("Handle() = %v, dependency %q, err %v, want %v, %q", v.Kind, v.Dependency, v.Err, tc.kind, tc.dependency)
				}
				if _, ok := w.result(claim); ok || w.model.Stats().Requests != 0 {
					t.Errorf("result %v, %d requests to the model, want none", ok, w.model.Stats().Requests)
				}
			})
		})
	}
}

// TestHandlerResultCannotBeWritten holds what an answer costs while it cannot be written: one call, however often the
// message is tried in its slot.
func TestHandlerResultCannotBeWritten(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault blobtest.Fault
		kind  worker.Kind
	}{
		{"403", blobtest.Fault{Status: 403, Code: "AuthorizationPermissionMismatch", Message: canaryToken}, worker.Misconfigured},
		{"container gone meanwhile", blobtest.Fault{Status: 404, Code: "ContainerNotFound"}, worker.Misconfigured},
		{"503", blobtest.Fault{Status: 503}, worker.Infrastructure},
		{"cut", blobtest.Fault{Cut: true}, worker.Infrastructure},
		{"no answer", blobtest.Fault{Hang: true}, worker.Infrastructure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			broken := true
			bubble(t, &options{fault: func(r blobtest.Request) *blobtest.Fault {
				if !broken {
					return nil
				}
				return on(store, blobtest.OperationPutBlob, tc.fault)(r)
			}}, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				var answered time.Time
				for range 5 {
					v := w.handle(t.Context(), claim)
					if v.Kind != tc.kind || v.Dependency != storeDep || v.Err == nil {
						t.Fatalf("Handle() = %v, dependency %q, err %v, want %v, %q", v.Kind, v.Dependency, v.Err, tc.kind, storeDep)
					}
					if answered.IsZero() {
						answered = time.Now()
					}
				}
				broken = false
				if v := w.handle(t.Context(), claim); v.Kind != worker.Answered {
					t.Errorf("Handle() when it can be written = %v, want answered", v.Kind)
				}
				if got := w.calls(text("a")); got != 1 {
					t.Errorf("calls = %d, want 1", got)
				}
				r, ok := w.result(claim)
				if !ok || r.Outcome != claimcheck.OutcomeSucceeded || !strings.Contains(r.Text, sum(text("a"))) {
					t.Errorf("result = %v, outcome %q, want the answer that was paid for", ok, r.Outcome)
				}
			})
		})
	}
}

// TestHandlerLostAcknowledgement: the result was written, and only the news of it is lost.
func TestHandlerLostAcknowledgement(t *testing.T) {
	bubble(t, &options{fault: func(r blobtest.Request) *blobtest.Fault {
		if r.Operation != blobtest.OperationPutBlob || r.Attempt > 1 {
			return nil
		}
		return &blobtest.Fault{AfterEffect: true, Cut: true}
	}}, func(t *testing.T, w *world) {
		claim := w.put("a.txt", text("a"), nil)
		if v := w.handle(t.Context(), claim); v.Kind != worker.Answered {
			t.Errorf("Handle() = %v, err %v, want answered", v.Kind, v.Err)
		}
		if _, ok := w.result(claim); !ok || w.calls(text("a")) != 1 {
			t.Errorf("result %v, calls %d, want true, 1", ok, w.calls(text("a")))
		}
	})
}
