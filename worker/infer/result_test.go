package infer_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/claimcheck"
	"millrace/internal/model"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/worker"
)

const trace = "4bf92f3577b34da6a3ce929d0e0e4736"

// TestHandlerResultTellsAll goes field by field through the result of a message that had a history: queued for 5 s, on its
// third delivery, its document read in 1 s, an empty answer first. Virtual time makes every duration exact.
func TestHandlerResultTellsAll(t *testing.T) {
	body := text("a")
	bubble(t, &options{
		latency: 2 * time.Second,
		fault:   on(docs, blobtest.OperationGetBlob, blobtest.Fault{Delay: time.Second}),
		behave: func(c modeltest.Call) modeltest.Behaviour {
			if c.Attempt == 1 {
				return modeltest.Behaviour{Kind: modeltest.EmptyText}
			}
			return modeltest.Behaviour{Text: "It ends on 1 May."}
		},
	}, func(t *testing.T, w *world) {
		claim := w.put("a.txt", body, nil)
		claim.Run, claim.Attributes = "second", map[string]string{"source": "crm"}
		id, err := claim.WorkID()
		if err != nil {
			t.Fatal(err)
		}
		m := w.message(claim)
		m.Delivery, m.Enqueued = 3, time.Now().Add(-5*time.Second)
		m.Properties = map[string]any{"traceparent": "00-" + trace + "-00f067aa0ba902b7-01"}
		began := time.Now()
		if v := w.handleMessage(t.Context(), m); v.Kind != worker.Answered {
			t.Fatalf("Handle() = %v, err %v, want answered", v.Kind, v.Err)
		}
		got, _ := w.result(claim)
		input := 2 * ((len(prompt) + len(body) + 3) / 4)
		const output = (len("It ends on 1 May.") + 3) / 4
		want := claimcheck.Result{
			Version: "1", Tenant: "acme", Model: "summarize", CorrelationID: "order-1", WorkID: id, Run: "second",
			Outcome: claimcheck.OutcomeSucceeded, Text: "It ends on 1 May.",
			Deployment: "main", ModelVersion: "gpt-4.1-mini-2025-04-14", Fingerprint: got.Fingerprint,
			Prompt:        claimcheck.PromptUsed{Version: "7", Hash: sum(prompt)},
			Input:         claimcheck.InputUsed{URL: claim.Blob, ETag: claim.ETag, SHA256: sum(body), Bytes: int64(len(body))},
			Usage:         claimcheck.TokenUsage{Input: input, Output: output},
			Cost:          claimcheck.CostOfUsage{Amount: (float64(input)*0.4*1e6 + float64(output)*1.6*1e6) / 1e12, Currency: "USD", Rule: "2026-11"},
			TimingsMS:     map[string]int64{"queue": 5000, "fetch": 1000, "wait": 0, "call": 4000},
			DeliveryCount: 3, TraceID: trace, CreatedAt: began.Add(5 * time.Second).UTC(), Attributes: claim.Attributes,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if !strings.HasPrefix(got.Fingerprint, "fp_") {
			t.Errorf("result.fingerprint = %q, want that of the service", got.Fingerprint)
		}
		stats := w.model.Stats()
		if got.Usage.Input != stats.Prompt || got.Usage.Output != stats.Completion || w.calls(body) != 2 {
			t.Errorf("result.usage = %d in, %d out; the service billed %d and %d for %d calls", got.Usage.Input, got.Usage.Output,
				stats.Prompt, stats.Completion, w.calls(body))
		}
	})
}

// TestHandlerUsageOfEveryAnswer: what was billed is in the result whatever the answer was worth.
func TestHandlerUsageOfEveryAnswer(t *testing.T) {
	for _, kind := range []modeltest.Kind{
		modeltest.Answer, modeltest.OutputFiltered, modeltest.OutputFilteredCut, modeltest.ModelRefusal, modeltest.EmptyText,
		modeltest.OutputLimit, modeltest.ReasoningLimit,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, &options{behave: always(modeltest.Behaviour{Kind: kind})}, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				w.handle(t.Context(), claim)
				r, ok := w.result(claim)
				s := w.model.Stats()
				if !ok || r.Usage.Input != s.Prompt || r.Usage.Output != s.Completion || s.Prompt == 0 {
					t.Errorf("result = %v, usage %+v, want the %d and %d that were billed", ok, r.Usage, s.Prompt, s.Completion)
				}
				cost := (float64(s.Prompt)*0.4 + float64(s.Completion)*1.6) / 1e6
				if d := r.Cost.Amount - cost; d > 1e-12 || d < -1e-12 || r.Cost.Currency != "USD" {
					t.Errorf("result.cost = %+v, want %.12f USD", r.Cost, cost)
				}
			})
		})
	}
}

func TestHandlerTraceID(t *testing.T) {
	const header = "00-" + trace + "-00f067aa0ba902b7-01"
	for _, tc := range []struct {
		name       string
		properties map[string]any
		want       string
	}{
		{"nothing", nil, ""},
		{"traceparent", map[string]any{"traceparent": header}, trace},
		{"Diagnostic-Id", map[string]any{"Diagnostic-Id": header}, trace},
		{"both", map[string]any{"traceparent": header, "Diagnostic-Id": strings.ReplaceAll(header, "4", "5")}, trace},
		{"a bad traceparent", map[string]any{"traceparent": "00-" + trace, "Diagnostic-Id": header}, trace},
		{"a later version with more fields", map[string]any{"traceparent": "cc-" + trace + "-00f067aa0ba902b7-01-more"}, trace},
		{"hierarchical", map[string]any{"Diagnostic-Id": "|4bf92f3577b34da6.1."}, ""},
		{"zeros", map[string]any{"traceparent": "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01"}, ""},
		{"upper case", map[string]any{"traceparent": strings.ToUpper(header)}, ""},
		{"not a string", map[string]any{"traceparent": 1, "Diagnostic-Id": []byte(header)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				m := w.message(claim)
				m.Properties = tc.properties
				w.handleMessage(t.Context(), m)
				if r, _ := w.result(claim); r.TraceID != tc.want {
					t.Errorf("result.trace_id = %q, want %q", r.TraceID, tc.want)
				}
			})
		})
	}
}

// TestEstimatesAgree holds four estimates of one request together: the catalog's, which plans; the request's, which is
// reserved; the limiter's, which holds it; and the service's, by which it refuses.
func TestEstimatesAgree(t *testing.T) {
	for i, body := range []string{
		"x", "four", "fünf!", strings.Repeat("word ", 999), "文書の要約", "🙂🙂🙂", "\r\n line ends \r\n", `{"json": "in JSON"}`,
	} {
		for _, name := range []string{"summarize", "extract"} {
			t.Run(fmt.Sprintf("%d/%s", i, name), func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, w *world) {
					var mu sync.Mutex
					charge := -1
					w.model.Observe = func(e modeltest.Event) {
						mu.Lock()
						defer mu.Unlock()
						charge = e.Charge
					}
					claim := w.put("a.txt", body, nil)
					claim.Model = name
					if v := w.handle(t.Context(), claim); v.Kind != worker.Answered {
						t.Fatalf("Handle() = %v, err %v, want answered", v.Kind, v.Err)
					}
					mu.Lock()
					defer mu.Unlock()
					alias := w.catalog.Aliases[name]
					planned := alias.Estimate(len([]rune(body)))
					request := model.Request{System: alias.Prompt, Document: body, MaxCompletionTokens: alias.Parameters.MaxCompletionTokens}
					held := w.deployments["main"].Limiter.Stats().Used
					if planned != charge || request.Estimate() != charge || held != charge {
						t.Errorf("estimates: catalog %d, request %d, limiter %d, want the %d of the service", planned, request.Estimate(), held, charge)
					}
				})
			})
		}
	}
}

// BenchmarkHandle is one message over connections in memory: the unmodified clients, and emulators that answer at once.
func BenchmarkHandle(b *testing.B) {
	body := text("a") + strings.Repeat("word ", 800)
	b.Run("result=new", func(b *testing.B) {
		w := newWorld(b, &options{tpm: 1 << 30})
		claim := w.put("a.txt", body, nil)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			claim.Run = fmt.Sprint("r", i)
			if v := w.handle(b.Context(), claim); v.Kind != worker.Answered {
				b.Fatalf("Handle() = %v, err %v", v.Kind, v.Err)
			}
		}
	})
	b.Run("result=there", func(b *testing.B) {
		w := newWorld(b, nil)
		claim := w.put("a.txt", body, nil)
		w.handle(b.Context(), claim)
		b.ReportAllocs()
		for b.Loop() {
			if v := w.handle(b.Context(), claim); v.Kind != worker.Answered {
				b.Fatalf("Handle() = %v, err %v", v.Kind, v.Err)
			}
		}
	})
	b.Run("result=poison", func(b *testing.B) {
		w := newWorld(b, nil)
		claim := w.put("a.txt", body, nil)
		claim.Tenant = "umbrella"
		m := w.message(claim)
		b.ReportAllocs()
		for b.Loop() {
			if v := w.handler.Handle(b.Context(), m); v.Kind != worker.Poison {
				b.Fatalf("Handle() = %v, err %v", v.Kind, v.Err)
			}
		}
	})
}
