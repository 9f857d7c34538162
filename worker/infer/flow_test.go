package infer_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/claimcheck"
	"millrace/quota"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/sbtest"
	"millrace/worker"
)

// window is how long a sent request counts.
const window = quota.DefaultWindow

// TestHandlerResultIsThere: whatever the result says, and even if it says nothing that can be read, its name is taken and
// the work was done.
func TestHandlerResultIsThere(t *testing.T) {
	for _, tc := range []struct {
		name, body      string
		kind            worker.Kind
		outcome, reason string
	}{
		{"succeeded", `,"outcome":"succeeded","text":"An answer."`, worker.Answered, "succeeded", ""},
		{"truncated", `,"outcome":"truncated","reason":"output_limit"`, worker.Answered, "truncated", "output_limit"},
		{"refused", `,"outcome":"refused","reason":"prompt_filter"`, worker.Refused, "refused", "prompt_filter"},
		{"rejected", `,"outcome":"rejected","reason":"context_length"`, worker.Failed, "rejected", "context_length"},
		{"unreadable", `,"outcome":"unreadable","reason":"blob_missing"`, worker.Failed, "unreadable", "blob_missing"},
		{"not a result", `,"outcome":"unheard of"`, worker.Answered, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				claim.Deadline = time.Now()
				<-time.After(time.Second) // that it is late does not matter any more
				id, err := claim.WorkID()
				if err != nil {
					t.Fatal(err)
				}
				name, err := claim.ResultName()
				if err != nil {
					t.Fatal(err)
				}
				w.blobs.Put(store, results, name, fmt.Appendf(nil,
					`{"version":"1","tenant":"acme","model":"summarize","correlation_id":"order-1","work_id":"%s","input":{"url":"%s"},"created_at":"2000-01-01T00:00:00Z"%s}`,
					id, claim.Blob, tc.body), nil)
				v := w.handle(t.Context(), claim)
				if v.Kind != tc.kind || v.Outcome != tc.outcome || v.Reason != tc.reason {
					t.Errorf("Handle() = %v %s %s, want %v %s %s", v.Kind, v.Outcome, v.Reason, tc.kind, tc.outcome, tc.reason)
				}
				if w.model.Stats().Requests != 0 || w.blobs.Stats().Total() != 1 {
					t.Errorf("requests to the model and to storage = %d, %d, want 0, 1", w.model.Stats().Requests, w.blobs.Stats().Total())
				}
			})
		})
	}
}

// TestHandlerTwoDeliveriesAtOnce: both are paid for, one result stays, both messages are complete.
func TestHandlerTwoDeliveriesAtOnce(t *testing.T) {
	bubble(t, &options{latency: 2 * time.Second}, func(t *testing.T, w *world) {
		claim := w.put("a.txt", text("a"), nil)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if v := w.handle(t.Context(), claim); v.Kind != worker.Answered || v.Outcome != "succeeded" {
					t.Errorf("Handle() = %v %s, err %v, want answered succeeded", v.Kind, v.Outcome, v.Err)
				}
			})
		}
		both.Wait()
		if _, ok := w.result(claim); !ok {
			t.Error("there is no result")
		}
		if got := w.calls(text("a")); got != 2 {
			t.Errorf("calls = %d, want 2: neither delivery knows of the other", got)
		}
		if v := w.handle(t.Context(), claim); v.Kind != worker.Answered || w.calls(text("a")) != 2 {
			t.Errorf("Handle(third delivery) = %v with %d calls, want answered without a further call", v.Kind, w.calls(text("a")))
		}
	})
}

// TestHandlerIdentity: what makes work the same is the claim's alone, so the same name is used whatever message brings it.
func TestHandlerIdentity(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		claim := w.put("a b.txt", text("a"), nil)
		claim.Blob = "https://DOCS.blob.core.windows.net:443/inbox/acme/a%20b.txt"
		first := w.message(claim)
		if v := w.handleMessage(t.Context(), first); v.Kind != worker.Answered {
			t.Fatalf("Handle() = %v, err %v, want answered", v.Kind, v.Err)
		}
		same := claim
		same.Blob = "https://docs.blob.core.windows.net/inbox/%61cme/a%20b.txt"
		same.ETag = `W/"` + claim.ETag + `"`
		same.Deadline = time.Now().Add(time.Hour)
		same.Attributes = map[string]string{"source": "crm"}
		again := w.message(same)
		again.ID, again.Delivery = "m-2", 5
		if v := w.handleMessage(t.Context(), again); v.Kind != worker.Answered || w.calls(text("a")) != 1 {
			t.Errorf("Handle(same work) = %v with %d calls, want answered with 1", v.Kind, w.calls(text("a")))
		}
		for i, change := range []func(*claimcheck.Claim){
			func(c *claimcheck.Claim) { c.Run = "2" },
			func(c *claimcheck.Claim) { c.CorrelationID = "order-2" },
			func(c *claimcheck.Claim) { c.Model = "wide" },
			func(c *claimcheck.Claim) { c.ETag = "" },
		} {
			other := claim
			change(&other)
			if v := w.handle(t.Context(), other); v.Kind != worker.Answered || w.calls(text("a")) != 2+i {
				t.Errorf("Handle(change %d) = %v with %d calls, want answered with %d", i, v.Kind, w.calls(text("a")), 2+i)
			}
			w.result(other)
		}
		if got := len(w.blobs.List(store, results, "acme/")); got != 5 {
			t.Errorf("results = %d, want 5", got)
		}
	})
}

func TestHandlerDeadline(t *testing.T) {
	for _, tc := range []struct {
		name     string
		options  options
		full     bool // the limiter, from the start for a window
		deadline time.Duration
		outcome  string
		after    time.Duration
		calls    int
	}{
		{name: "passes while waiting for quota", full: true, deadline: 30 * time.Second, outcome: "expired", after: 30 * time.Second},
		{name: "is later than the quota", full: true, deadline: 2 * time.Minute, outcome: "succeeded", after: window, calls: 1},
		{name: "passes while the document is read", options: options{fault: on(docs, blobtest.OperationGetBlob, blobtest.Fault{Delay: 10 * time.Second})},
			deadline: 5 * time.Second, outcome: "expired", after: 10 * time.Second},
		{name: "passes while the model works", options: options{latency: 20 * time.Second}, deadline: 5 * time.Second,
			outcome: "succeeded", after: 20 * time.Second, calls: 1}, // it is paid for, and late is better than never
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, &tc.options, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				claim.Deadline = time.Now().Add(tc.deadline)
				if tc.full {
					w.fill("main")
				}
				began := time.Now()
				v := w.handle(t.Context(), claim)
				if v.Outcome != tc.outcome || time.Since(began) != tc.after {
					t.Errorf("Handle() = %v %s %s after %v, want %s after %v", v.Kind, v.Outcome, v.Reason, time.Since(began), tc.outcome, tc.after)
				}
				if r, ok := w.result(claim); !ok || string(r.Outcome) != tc.outcome {
					t.Errorf("result = %v, outcome %s, want %s", ok, r.Outcome, tc.outcome)
				}
				if got := w.requests(text("a")); got != tc.calls {
					t.Errorf("requests to the model = %d, want %d", got, tc.calls)
				}
			})
		})
	}
}

// TestHandlerCutWhileWaiting: a drain or a lost lock ends the wait for quota at once, and nothing of it stays.
func TestHandlerCutWhileWaiting(t *testing.T) {
	for _, tc := range []struct {
		cause  error
		reason string
	}{{worker.ErrDraining, "drain"}, {worker.ErrLockLost, "lock_lost"}} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				claim.Deadline = time.Now().Add(time.Hour)
				w.fill("main")
				ctx, cut := context.WithCancelCause(t.Context())
				defer cut(nil)
				began := time.Now()
				stop := time.AfterFunc(10*time.Second, func() { cut(tc.cause) })
				defer stop.Stop()
				v := w.handle(ctx, claim)
				if v.Kind != worker.Cut || v.Reason != tc.reason || time.Since(began) != 10*time.Second {
					t.Errorf("Handle() = %v %s after %v, want interrupted %s after 10s", v.Kind, v.Reason, time.Since(began), tc.reason)
				}
				if s := w.deployments["main"].Limiter.Stats(); s.Waiting != 0 || s.Used != s.Cap {
					t.Errorf("limiter: %d waiting, %d used, want 0 and the %d of before", s.Waiting, s.Used, s.Cap)
				}
				if _, ok := w.result(claim); ok || w.model.Stats().Requests != 0 {
					t.Errorf("result %v, %d requests to the model, want none", ok, w.model.Stats().Requests)
				}
			})
		})
	}
}

// TestHandlerCutWhileReading: a cut ends a read of storage that hangs, and is not taken for an outage of it.
func TestHandlerCutWhileReading(t *testing.T) {
	for _, account := range []string{docs, store} {
		t.Run(account, func(t *testing.T) {
			bubble(t, &options{fault: on(account, blobtest.OperationGetBlob, blobtest.Fault{Hang: true})}, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				ctx, cut := context.WithCancelCause(t.Context())
				defer cut(nil)
				began := time.Now()
				stop := time.AfterFunc(10*time.Second, func() { cut(worker.ErrDraining) })
				defer stop.Stop()
				v := w.handle(ctx, claim)
				if v.Kind != worker.Cut || v.Reason != "drain" || time.Since(began) != 10*time.Second {
					t.Errorf("Handle() = %v %s after %v, want interrupted drain after 10s", v.Kind, v.Reason, time.Since(began))
				}
				if _, ok := w.result(claim); ok || w.model.Stats().Requests != 0 {
					t.Errorf("result %v, %d requests to the model, want none", ok, w.model.Stats().Requests)
				}
			})
		})
	}
}

// askedShare runs a function whenever its limiter looks at its cap, which is within every reservation.
type askedShare struct {
	tokens int
	asked  func()
}

func (s *askedShare) Cap(t time.Time) (int, time.Time) {
	if s.asked != nil {
		s.asked()
	}
	return s.tokens, t.Add(time.Nanosecond)
}

// TestHandlerDrainBeforeStart lets a real worker drain in the moment between the reservation and the start of the call: the
// reservation goes back, the message too, and the model hears nothing.
func TestHandlerDrainBeforeStart(t *testing.T) {
	share := &askedShare{tokens: 10_000}
	bubble(t, &options{share: share}, func(t *testing.T, w *world) {
		running, stop := context.WithCancel(t.Context())
		defer stop()
		var inHand context.Context
		share.asked = func() {
			if inHand != nil {
				stop()
				<-inHand.Done()
			}
		}
		bus := &sbtest.Server{}
		if err := bus.CreateQueue("q", nil); err != nil {
			t.Fatal(err)
		}
		pool, err := worker.NewPool(1, func() (*azservicebus.Client, error) {
			return azservicebus.NewClientFromConnectionString(bus.ConnectionString(), &azservicebus.ClientOptions{
				NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return bus.Dial(ctx) },
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		claim := w.put("a.txt", text("a"), nil)
		if err := bus.Send("q", sbtest.Message{ID: "m-1", Body: w.message(claim).Body}); err != nil {
			t.Fatal(err)
		}
		var verdict worker.Verdict
		run := worker.New(pool, "q", func(ctx context.Context, m *worker.Message) worker.Verdict {
			inHand = ctx
			verdict = w.handleMessage(ctx, m)
			inHand = nil
			return verdict
		}, &worker.Options{Slots: 1, Receivers: 1})
		if err := run.Run(running); err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		if verdict.Kind != worker.Cut || verdict.Reason != "drain" {
			t.Errorf("verdict = %v %s, want interrupted drain", verdict.Kind, verdict.Reason)
		}
		if s := w.deployments["main"].Limiter.Stats(); s.Used != 0 {
			t.Errorf("limiter: %d tokens used, want 0", s.Used)
		}
		if s := bus.Stats("q"); s.Abandoned != 1 || s.Completed != 0 || w.model.Stats().Requests != 0 {
			t.Errorf("abandoned %d, completed %d, requests to the model %d, want 1, 0, 0", s.Abandoned, s.Completed, w.model.Stats().Requests)
		}
		if err := pool.Close(context.Background()); err != nil {
			t.Logf("close pool: %v", err)
		}
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestHandlerCutDuringTheCall: the request is broken off, and what the service may have counted stays counted.
func TestHandlerCutDuringTheCall(t *testing.T) {
	for _, tc := range []struct {
		cause  error
		reason string
	}{{worker.ErrLockLost, "lock_lost"}, {worker.ErrDraining, "drain"}} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, &options{latency: time.Minute}, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				ctx, cut := context.WithCancelCause(t.Context())
				defer cut(nil)
				began := time.Now()
				stop := time.AfterFunc(10*time.Second, func() { cut(tc.cause) })
				defer stop.Stop()
				v := w.handle(ctx, claim)
				if v.Kind != worker.Cut || v.Reason != tc.reason || time.Since(began) != 10*time.Second {
					t.Errorf("Handle() = %v %s after %v, want interrupted %s after 10s", v.Kind, v.Reason, time.Since(began), tc.reason)
				}
				synctest.Wait()
				if got := w.model.Stats().Cut; got != 1 {
					t.Errorf("requests broken off = %d, want 1", got)
				}
				if s := w.deployments["main"].Limiter.Stats(); s.Used != w.estimate(text("a")) {
					t.Errorf("limiter: %d tokens used, want the %d of the request", s.Used, w.estimate(text("a")))
				}
				if _, ok := w.result(claim); ok {
					t.Error("there is a result, want none")
				}
				if v := w.handle(t.Context(), claim); v.Kind != worker.Answered {
					t.Errorf("Handle(next delivery) = %v, err %v, want answered", v.Kind, v.Err)
				}
				w.result(claim)
			})
		})
	}
}

// TestHandlerLockLostAfterTheAnswer: what was paid for is written, although nobody will settle this delivery; the next one
// finds it.
func TestHandlerLockLostAfterTheAnswer(t *testing.T) {
	var cut context.CancelCauseFunc
	bubble(t, &options{fault: func(r blobtest.Request) *blobtest.Fault {
		if r.Operation != blobtest.OperationPutBlob || r.Attempt > 1 {
			return nil
		}
		cut(worker.ErrLockLost)
		return &blobtest.Fault{Status: 503, Delay: time.Second} // so that the writing goes on after the loss
	}}, func(t *testing.T, w *world) {
		var ctx context.Context
		ctx, cut = context.WithCancelCause(t.Context())
		claim := w.put("a.txt", text("a"), nil)
		if v := w.handle(ctx, claim); v.Kind != worker.Answered {
			t.Errorf("Handle() = %v, err %v, want answered", v.Kind, v.Err)
		}
		if _, ok := w.result(claim); !ok {
			t.Error("there is no result")
		}
		if v := w.handle(t.Context(), claim); v.Kind != worker.Answered || w.calls(text("a")) != 1 {
			t.Errorf("Handle(next delivery) = %v with %d calls, want answered with 1", v.Kind, w.calls(text("a")))
		}
	})
}

func TestHandlerPrefersDeployments(t *testing.T) {
	long := text("long") + strings.Repeat("word ", 1000) // more than 1,000 tokens
	for _, tc := range []struct {
		name    string
		options options
		body    string
		before  func(*world)
		served  string
		after   time.Duration
		outcome string
	}{
		{name: "the first that has room", served: "main", outcome: "succeeded"},
		{name: "the second while the first is full", before: func(w *world) { w.fill("main") }, served: "spare", outcome: "succeeded"},
		{name: "the second while the first is paused", before: func(w *world) { w.deployments["main"].Limiter.Pause(time.Hour) }, served: "spare", outcome: "succeeded"},
		{name: "the second for what the first can never take", options: options{tpm: 1000}, body: long, served: "spare", outcome: "succeeded"},
		{name: "the first, after a wait, while both are full", before: func(w *world) { w.fill("main"); w.fill("spare") },
			served: "main", after: window, outcome: "succeeded"},
		{name: "waits for the second if only that can ever take it", options: options{tpm: 1000}, body: long,
			before: func(w *world) { w.fill("spare") }, served: "spare", after: window, outcome: "succeeded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, &tc.options, func(t *testing.T, w *world) {
				claim := w.put("a.txt", cmp.Or(tc.body, text("a")), nil)
				claim.Model = "wide"
				if tc.before != nil {
					tc.before(w)
				}
				began := time.Now()
				v := w.handle(t.Context(), claim)
				if v.Outcome != tc.outcome || time.Since(began) != tc.after {
					t.Errorf("Handle() = %v %s after %v, want %s after %v", v.Kind, v.Outcome, time.Since(began), tc.outcome, tc.after)
				}
				r, _ := w.result(claim)
				rule := map[string]string{"main": "2026-11", "spare": "spare"}[tc.served]
				if r.Deployment != tc.served || r.Cost.Rule != rule {
					t.Errorf("result: deployment %q, price rule %q, want %q, %q", r.Deployment, r.Cost.Rule, tc.served, rule)
				}
			})
		})
	}
}

// TestHandlerSpillsOverAfterA429: a refused request pauses its deployment, so the next try goes to the other one.
func TestHandlerSpillsOverAfterA429(t *testing.T) {
	bubble(t, &options{behave: func(c modeltest.Call) modeltest.Behaviour {
		if c.Deployment == mainName {
			return modeltest.Capacity(time.Hour - time.Second)
		}
		return modeltest.Behaviour{}
	}}, func(t *testing.T, w *world) {
		claim := w.put("a.txt", text("a"), nil)
		claim.Model = "wide"
		if v := w.handle(t.Context(), claim); v.Kind != worker.Throttled || v.Dependency != mainDep {
			t.Errorf("Handle() = %v %s, want throttled by %s", v.Kind, v.Dependency, mainDep)
		}
		began := time.Now()
		if v := w.handle(t.Context(), claim); v.Kind != worker.Answered || time.Since(began) != 0 {
			t.Errorf("Handle() again = %v after %v, want answered at once", v.Kind, time.Since(began))
		}
		if r, _ := w.result(claim); r.Deployment != "spare" {
			t.Errorf("result.deployment = %q, want spare", r.Deployment)
		}
	})
}

// TestHandlerOversizeGivesBack: the service did not count what it says can never fit, so it takes nobody else's room.
func TestHandlerOversizeGivesBack(t *testing.T) {
	bubble(t, &options{models: map[string]modeltest.Deployment{mainName: {TPM: 100}}}, func(t *testing.T, w *world) {
		if v := w.handle(t.Context(), w.put("a.txt", text("a"), nil)); v.Reason != string(claimcheck.ReasonTPMLimit) {
			t.Fatalf("Handle() = %v %s, want tpm_limit", v.Kind, v.Reason)
		}
		if s := w.deployments["main"].Limiter.Stats(); s.Used != 0 || !s.PausedUntil.IsZero() {
			t.Errorf("limiter: %d tokens used, paused until %v, want 0 and no pause", s.Used, s.PausedUntil)
		}
	})
}
