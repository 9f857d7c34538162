package infer_test

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/claimcheck"
	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/worker"
)

func always(b modeltest.Behaviour) func(modeltest.Call) modeltest.Behaviour {
	return func(modeltest.Call) modeltest.Behaviour { return b }
}

func replies(status int, body string, header ...string) func(modeltest.Call) modeltest.Behaviour {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return always(modeltest.Behaviour{Kind: modeltest.Reply, Status: status, Body: []byte(body), Header: h})
}

// TestHandlerOutcomes goes through every outcome and reason that a result can have.
func TestHandlerOutcomes(t *testing.T) {
	const plain, jsonType = "text/plain", "application/json"
	seen := map[string]bool{"rejected over_budget": true} // the catalog has no budgets
	words := text("a")
	long := text("long") + strings.Repeat("word ", 1000)
	for _, tc := range []struct {
		name    string
		options options
		body    string               // Default: words
		stored  *blobtest.PutOptions // Default: UTF-8 text
		claim   func(*world, *claimcheck.Claim)

		kind     worker.Kind
		outcome  claimcheck.Outcome
		reason   claimcheck.Reason
		requests int  // that reached the model
		calls    int  // that it ran
		answered bool // there is text
		reads    int  // of the document
	}{
		{name: "a plain answer", kind: worker.Answered, outcome: "succeeded", requests: 1, calls: 1, answered: true, reads: 1},
		{name: "an answer that matches the schema", claim: as("extract"),
			kind: worker.Answered, outcome: "succeeded", requests: 1, calls: 1, answered: true, reads: 1},
		{name: "a claim that pins no version", claim: func(_ *world, c *claimcheck.Claim) { c.ETag = "" },
			kind: worker.Answered, outcome: "succeeded", requests: 1, calls: 1, answered: true, reads: 1},

		{name: "output limit", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.OutputLimit})},
			kind: worker.Answered, outcome: "truncated", reason: "output_limit", requests: 1, calls: 1, answered: true, reads: 1},
		{name: "output limit in JSON", claim: as("extract"), options: options{behave: always(modeltest.Behaviour{Kind: modeltest.OutputLimit})},
			kind: worker.Answered, outcome: "truncated", reason: "output_limit", requests: 1, calls: 1, answered: true, reads: 1},
		{name: "reasoning limit", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.ReasoningLimit})},
			kind: worker.Answered, outcome: "truncated", reason: "reasoning_limit", requests: 1, calls: 1, reads: 1},

		{name: "prompt filter, as a 400", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.PromptFiltered})},
			kind: worker.Refused, outcome: "refused", reason: "prompt_filter", requests: 1, calls: 1, reads: 1},
		{name: "prompt filter, as a 200 without choices", options: options{behave: replies(200,
			`{"choices":[],"prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"jailbreak":{"filtered":true,"detected":true}}}]}`)},
			kind: worker.Refused, outcome: "refused", reason: "prompt_filter", requests: 1, reads: 1},
		{name: "output filter without text", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.OutputFiltered})},
			kind: worker.Refused, outcome: "refused", reason: "output_filter", requests: 1, calls: 1, reads: 1},
		{name: "output filter with half a text", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.OutputFilteredCut})},
			kind: worker.Refused, outcome: "refused", reason: "output_filter", requests: 1, calls: 1, reads: 1},
		{name: "the model declines", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.ModelRefusal})},
			kind: worker.Refused, outcome: "refused", reason: "model_refusal", requests: 1, calls: 1, reads: 1},

		{name: "context length", options: options{behave: always(modeltest.ContextLength())},
			kind: worker.Failed, outcome: "rejected", reason: "context_length", requests: 1, reads: 1},
		{name: "larger than our limit", options: options{tpm: 1000}, body: long,
			kind: worker.Failed, outcome: "rejected", reason: "tpm_limit", reads: 1},
		{name: "larger than the service's limit", options: options{models: map[string]modeltest.Deployment{mainName: {TPM: 100}}},
			kind: worker.Failed, outcome: "rejected", reason: "tpm_limit", requests: 1, reads: 1},
		{name: "a request parameter", options: options{behave: replies(400,
			`{"error":{"code":"invalid_value","param":"messages[1].content","type":"invalid_request_error","message":"`+canaryText+`"}}`)},
			kind: worker.Failed, outcome: "rejected", reason: "request_parameter", requests: 1, reads: 1},
		{name: "media", options: options{behave: always(modeltest.InvalidImage())},
			kind: worker.Failed, outcome: "rejected", reason: "invalid_media", requests: 1, reads: 1},
		{name: "an answer that is not JSON", claim: as("extract"), options: options{behave: always(modeltest.Behaviour{Text: "The " + canaryText})},
			kind: worker.Failed, outcome: "rejected", reason: "invalid_output", requests: 1, calls: 1, reads: 1},
		{name: "an answer in a code fence", claim: as("extract"), options: options{behave: always(modeltest.Behaviour{Text: "```json\n{\"sha256\":\"x\"}\n```"})},
			kind: worker.Failed, outcome: "rejected", reason: "invalid_output", requests: 1, calls: 1, reads: 1},
		{name: "an answer that does not match the schema", claim: as("extract"), options: options{behave: always(modeltest.Behaviour{Text: `{"` + canaryText + `":1}`})},
			kind: worker.Failed, outcome: "rejected", reason: "invalid_output", requests: 1, calls: 1, reads: 1},
		{name: "no choices, twice", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.NoChoices})},
			kind: worker.Failed, outcome: "rejected", reason: "empty_answer", requests: 2, calls: 2, reads: 1},
		{name: "no text, twice", options: options{behave: always(modeltest.Behaviour{Kind: modeltest.EmptyText})},
			kind: worker.Failed, outcome: "rejected", reason: "empty_answer", requests: 2, calls: 2, reads: 1},
		{name: "tool calls that nobody offered, twice", options: options{behave: replies(200,
			`{"choices":[{"finish_reason":"tool_calls","message":{"content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}}]}`)},
			kind: worker.Failed, outcome: "rejected", reason: "empty_answer", requests: 2, reads: 1},

		{name: "no such blob", claim: func(w *world, _ *claimcheck.Claim) { w.blobs.Remove(docs, inbox, "acme/a.txt") },
			kind: worker.Failed, outcome: "unreadable", reason: "blob_missing", reads: 3},
		{name: "archived", stored: &blobtest.PutOptions{ContentType: plain, Tier: "Archive"},
			kind: worker.Failed, outcome: "unreadable", reason: "blob_archived", reads: 1},
		{name: "no bytes", claim: func(w *world, c *claimcheck.Claim) { *c = w.put("a.txt", "", nil) },
			kind: worker.Failed, outcome: "unreadable", reason: "empty_document", reads: 1},
		{name: "blanks", body: " \r\n\t", kind: worker.Failed, outcome: "unreadable", reason: "empty_document", reads: 1},
		{name: "too large", body: strings.Repeat("x", 65537), kind: worker.Failed, outcome: "unreadable", reason: "too_large", reads: 1},
		{name: "a PDF", stored: &blobtest.PutOptions{ContentType: "application/pdf"},
			kind: worker.Failed, outcome: "unreadable", reason: "unsupported_type", reads: 1},
		{name: "not UTF-8", body: canaryText + "\xff\xfa", kind: worker.Failed, outcome: "unreadable", reason: "unsupported_charset", reads: 1},
		{name: "not the gzip it says", stored: &blobtest.PutOptions{ContentType: jsonType, ContentEncoding: "gzip"},
			kind: worker.Failed, outcome: "unreadable", reason: "corrupt", reads: 1},

		{name: "expired on arrival", claim: func(_ *world, c *claimcheck.Claim) { c.Deadline = time.Now(); <-time.After(time.Second) },
			kind: worker.Failed, outcome: "expired", reason: "deadline"},
		{name: "superseded", claim: func(w *world, _ *claimcheck.Claim) { w.put("a.txt", text("newer"), nil) },
			kind: worker.Failed, outcome: "superseded", reason: "etag_changed", reads: 1},
	} {
		seen[fmt.Sprint(tc.outcome, " ", tc.reason)] = true
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, &tc.options, func(t *testing.T, w *world) {
				body := cmp.Or(tc.body, words)
				claim := w.put("a.txt", body, tc.stored)
				if tc.claim != nil {
					tc.claim(w, &claim)
				}
				v := w.handle(t.Context(), claim)
				if v.Kind != tc.kind || v.Outcome != string(tc.outcome) || v.Reason != string(tc.reason) || v.Err != nil {
					t.Errorf("Handle() = %v %s %s, err %v, want %v %s %s", v.Kind, v.Outcome, v.Reason, v.Err, tc.kind, tc.outcome, tc.reason)
				}
				r, ok := w.result(claim)
				if !ok {
					t.Fatal("there is no result")
				}
				if r.Outcome != tc.outcome || r.Reason != tc.reason || (r.Text != "") != tc.answered {
					t.Errorf("result = %s %s, text %q, want %s %s, text %v", r.Outcome, r.Reason, r.Text, tc.outcome, tc.reason, tc.answered)
				}
				if (r.Detail == "") != (r.Outcome == "succeeded" || r.Outcome == "truncated") {
					t.Errorf("result.detail = %q with outcome %s", r.Detail, r.Outcome)
				}
				if got := w.requests(body); got != tc.requests {
					t.Errorf("requests to the model = %d, want %d", got, tc.requests)
				}
				if got := w.calls(body); got != tc.calls {
					t.Errorf("calls the model ran = %d, want %d", got, tc.calls)
				}
				if got := w.reads() - 1; got != tc.reads { // one looked for the result
					t.Errorf("reads of the document = %d, want %d", got, tc.reads)
				}

				// A redelivery finds the result whatever it says: nothing is read, asked or written again.
				requests, reads := w.model.Stats().Requests, w.reads()
				again := w.handle(t.Context(), claim)
				if again.Kind != v.Kind || again.Outcome != v.Outcome || again.Reason != v.Reason {
					t.Errorf("Handle(redelivery) = %v, want %v", again, v)
				}
				if w.model.Stats().Requests != requests || w.reads() != reads+1 {
					t.Errorf("a redelivery made %d requests to the model and %d reads, want 0 and 1", w.model.Stats().Requests-requests, w.reads()-reads)
				}
				w.result(claim)
			})
		})
	}
	for _, outcome := range claimcheck.Outcomes() {
		for _, reason := range outcome.Reasons() {
			if pair := fmt.Sprint(outcome, " ", reason); !seen[pair] {
				t.Errorf("no case has %s", pair)
			}
		}
	}
}

func as(alias string) func(*world, *claimcheck.Claim) {
	return func(_ *world, c *claimcheck.Claim) { c.Model = alias }
}

// TestHandlerPoison holds that a message that may not be followed costs nothing: no connection is opened for it.
func TestHandlerPoison(t *testing.T) {
	const sound = `{"version":"1","tenant":"acme","model":"summarize","blob":"https://docs.blob.core.windows.net/inbox/acme/a.txt","correlation_id":"c"}`
	with := func(old, new string) string { return strings.Replace(sound, old, new, 1) }
	seen := map[claimcheck.Reason]bool{claimcheck.ReasonDeliveryBudget: true} // the worker's to say
	for _, tc := range []struct {
		name, body string
		reason     claimcheck.Reason
	}{
		{"no JSON", canaryText, "malformed"},
		{"a name twice", with(`"tenant"`, `"tenant":"globex","tenant"`), "malformed"},
		{"something behind the object", sound + canaryText, "malformed"},
		{"a JSON string", `"{}"`, "unsupported_body"},
		{"an event", `{"specversion":"1.0","type":"Microsoft.Storage.BlobCreated"}`, "unsupported_body"},
		{"nothing", "", "empty_body"},
		{"blanks", " \n", "empty_body"},
		{"a newer version", with(`"1"`, `"2"`), "unknown_version"},
		{"no tenant", with(`"tenant":"acme",`, ""), "missing_field"},
		{"an empty tenant", with(`"acme"`, `""`), "missing_field"},
		{"no correlation id", with(`,"correlation_id":"c"`, ""), "missing_field"},
		{"a field of the sender's", with(`"version"`, `"priority":1,"version"`), "invalid_field"},
		{"a correlation id that leaves its folder", with(`"c"`, `"../globex/c"`), "invalid_field"},
		{"the document itself", with(`"version"`, `"content":"`+canaryText+`","version"`), "inline_payload"},
		{"two claims", "[" + sound + "," + sound + "]", "multiple_events"},
		{"a tenant that is not in the catalog", strings.ReplaceAll(sound, "acme", "umbrella"), "unknown_tenant"},
		{"an alias that is not in the catalog", with("summarize", "translate"), "unknown_alias"},
		{"another host", with(docsHost, "docs.blob.core.windows.net.evil.example"), "forbidden_reference"},
		{"another account", with(docsHost, "other.blob.core.windows.net"), "forbidden_reference"},
		{"another container", with("/inbox/", "/private/"), "forbidden_reference"},
		{"the results", with(docsHost+"/inbox/", storeHost+"/results/"), "forbidden_reference"},
		{"another tenant's folder", with("/acme/", "/globex/"), "forbidden_reference"},
		{"no encryption", with("https:", "http:"), "forbidden_reference"},
		{"a signature", with("a.txt", "a.txt?sv=2024-08-04&sig="+canarySAS), "forbidden_reference"},
		{"a user in the URL", with(docsHost, canarySAS+"@"+docsHost), "forbidden_reference"},
		{"a way out of the folder", with("/acme/", "/acme/../globex/"), "invalid_name"},
		{"a hidden way out of the folder", with("/acme/", "/acme/%2e%2e/globex/"), "invalid_name"},
	} {
		seen[tc.reason] = true
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, w *world) {
				w.put("a.txt", text("a"), nil)
				v := w.handleMessage(t.Context(), &worker.Message{Body: []byte(tc.body), Delivery: 1})
				if v.Kind != worker.Poison || v.Reason != string(tc.reason) || v.Detail == "" {
					t.Errorf("Handle() = %v %s %q, want poison %s with a detail", v.Kind, v.Reason, v.Detail, tc.reason)
				}
				if w.model.Stats().Requests != 0 || w.blobs.Stats().Total() != 0 {
					t.Errorf("requests to the model and to storage = %d, %d, want none", w.model.Stats().Requests, w.blobs.Stats().Total())
				}
			})
		})
	}
	for _, reason := range claimcheck.PoisonReasons() {
		if !seen[reason] {
			t.Errorf("no case has the reason %s", reason)
		}
	}
}

// TestHandlerOddAnswers: whatever stands in a whole answer, it is recorded. An answer that could not be would be paid for on
// every delivery.
func TestHandlerOddAnswers(t *testing.T) {
	const stop = `"finish_reason":"stop"`
	for _, tc := range []struct{ name, body, text string }{
		{"half a character", `{"choices":[{` + stop + `,"message":{"content":"a\ud800b"}}]}`, "a\uFFFDb"},
		{"control characters", `{"choices":[{` + stop + `,"message":{"content":"a\u0000\u001b[1mb\u2028"}}]}`, "a\x00\x1b[1mb\u2028"},
		{"a model with a name of its own", `{"model":"gpt\n\u0000","system_fingerprint":"\n","choices":[{` + stop + `,"message":{"content":"a"}}]}`, "a"},
		{"a model without a name", `{"model":null,"system_fingerprint":7,"choices":[{` + stop + `,"message":{"content":"a"}}]}`, "a"},
		{"usage beyond measure", `{"usage":{"prompt_tokens":1e300,"completion_tokens":-5,"prompt_tokens_details":{"cached_tokens":9e18}},"choices":[{` + stop + `,"message":{"content":"a"}}]}`, "a"},
		{"usage in words", `{"usage":"many","choices":[{` + stop + `,"message":{"content":"a"}}]}`, "a"},
		{"two choices", `{"choices":[{` + stop + `,"message":{"content":"a"}},{` + stop + `,"message":{"content":"b"}}]}`, "a"},
		{"a long answer", `{"choices":[{` + stop + `,"message":{"content":"` + strings.Repeat("x", 1<<20) + `"}}]}`, strings.Repeat("x", 1<<20)},
		{"a filter of unknown categories", `{"choices":[{"finish_reason":"content_filter","message":{},"content_filter_results":{"new\n` + canaryText[:6] + `":{"filtered":true,"severity":"high\n"}}}]}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, &options{behave: replies(200, tc.body)}, func(t *testing.T, w *world) {
				claim := w.put("a.txt", text("a"), nil)
				if v := w.handle(t.Context(), claim); v.Kind.Settlement() != worker.Complete {
					t.Errorf("Handle() = %v, err %v, want a verdict that completes", v.Kind, v.Err)
				}
				if r, ok := w.result(claim); !ok || r.Text != tc.text {
					t.Errorf("result = %v, text %.40q, want %.40q", ok, r.Text, tc.text)
				}
			})
		})
	}
}
