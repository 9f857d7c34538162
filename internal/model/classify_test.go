package model_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/model"
)

const (
	promptFilter = `{"error":{"message":"Blocked by policy.","type":null,"param":"prompt","code":"content_filter","status":400,` +
		`"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":false,"severity":"safe"},` +
		`"jailbreak":{"filtered":true,"detected":true},"violence":{"filtered":true,"severity":"medium"}}}}}`
	outputFilterNoContent = `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,` +
		`"finish_reason":"content_filter","message":{"role":"assistant"}}],"usage":{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}}`
	outputFilterPartial = `{"id":"c-1","model":"gpt-4o-2024-08-06","choices":[{"index":0,"finish_reason":"content_filter",` +
		`"message":{"role":"assistant","content":"The report says"},"content_filter_results":{}}],` +
		`"usage":{"prompt_tokens":812,"completion_tokens":64}}`
	refusal = `{"id":"c-1","model":"gpt-4o-2024-08-06","choices":[{"index":0,"finish_reason":"stop",` +
		`"message":{"role":"assistant","content":null,"refusal":"I will not do that."},"content_filter_results":{}}],` +
		`"usage":{"prompt_tokens":812,"completion_tokens":64}}`
	cut = `{"id":"c-1","model":"gpt-4o-2024-08-06","choices":[{"index":0,"finish_reason":"length",` +
		`"message":{"role":"assistant","content":"{\"items\":[{\"na"}}],"usage":{"prompt_tokens":812,"completion_tokens":64}}`
	reasoned = `{"id":"c-1","model":"o3","choices":[{"index":0,"finish_reason":"length","message":{"role":"assistant","content":""}}],` +
		`"usage":{"prompt_tokens":812,"completion_tokens":2000,"completion_tokens_details":{"reasoning_tokens":2000}}}`
	noChoices = `{"id":"","model":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":` +
		`{"hate":{"filtered":false,"severity":"safe"}}}],"choices":[],"usage":null}`
	noChoicesFiltered = `{"prompt_filter_results":[{"prompt_index":0,"content_filter_results":` +
		`{"hate":{"filtered":true,"severity":"high"}}}],"choices":[]}`
	fenced = "{\"id\":\"c-1\",\"object\":\"chat.completion\",\"model\":\"gpt-4o-2024-08-06\",\"system_fingerprint\":\"fp_1\"," +
		"\"choices\":[{\"index\":0,\"finish_reason\":\"stop\",\"message\":{\"role\":\"assistant\",\"content\":\"```json\\n{}\\n```\"}}]," +
		"\"usage\":{\"prompt_tokens\":812,\"completion_tokens\":64,\"prompt_tokens_details\":{\"cached_tokens\":512}," +
		"\"completion_tokens_details\":{\"reasoning_tokens\":16}}}"
	throttle    = `{"error":{"message":"Slow down.","type":null,"param":null,"code":"429"}}`
	noQuota     = `{"error":{"message":"Pay first.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`
	quotaProse  = `{"error":{"message":"Exceeded quota; see your billing.","type":null,"param":null,"code":"429"}}`
	apim429     = `{"statusCode":429,"message":"Rate limit is exceeded."}`
	notDeployed = `{"error":{"code":"DeploymentNotFound","message":"No such deployment."}}`
	html        = "<html><head><title>502 Bad Gateway</title></head></html>"
)

func badRequest(code, param string) string {
	quote := func(s string) string {
		if s == "" {
			return "null"
		}
		return `"` + s + `"`
	}
	return `{"error":{"message":"No.","type":"invalid_request_error","param":` + quote(param) + `,"code":` + quote(code) + `}}`
}

func stop(content, extra string) string {
	return `{"choices":[{"finish_reason":"stop","message":{"content":` + content + `}` + extra + `}]}`
}

// TestClassifyAnswer holds the table of the package documentation, its first half.
func TestClassifyAnswer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   model.Answer
	}{
		{"prompt filter", 400, promptFilter, model.Answer{Kind: model.PromptFiltered, Filters: []model.Filter{
			{Category: "jailbreak", Prompt: true}, {Category: "violence", Severity: "medium", Prompt: true}}}},
		{"prompt filter by inner code", 400, `{"error":{"code":"400","innererror":{"code":"ResponsibleAIPolicyViolation"}}}`,
			model.Answer{Kind: model.PromptFiltered}},
		{"policy check of a reasoning model", 400, badRequest("invalid_prompt", ""), model.Answer{Kind: model.PromptFiltered}},
		{"prompt filter inside 200", 200, promptFilter, model.Answer{Kind: model.PromptFiltered, Filters: []model.Filter{
			{Category: "jailbreak", Prompt: true}, {Category: "violence", Severity: "medium", Prompt: true}}}},
		{"output filter without content", 200, outputFilterNoContent, model.Answer{Kind: model.OutputFiltered,
			FinishReason: "content_filter", Model: "m", ResponseID: "x", Usage: model.Usage{Input: 9, Reported: true}}},
		{"output filter with partial text", 200, outputFilterPartial, model.Answer{Kind: model.OutputFiltered,
			FinishReason: "content_filter", Model: "gpt-4o-2024-08-06", ResponseID: "c-1", Usage: model.Usage{Input: 812, Output: 64, Reported: true}}},
		{"output filter by flag alone", 200, stop(`"text"`, `,"content_filter_results":{"violence":{"filtered":true,"severity":"high"}}`),
			model.Answer{Kind: model.OutputFiltered, FinishReason: "stop", Filters: []model.Filter{{Category: "violence", Severity: "high"}}}},
		{"refusal", 200, refusal, model.Answer{Kind: model.ModelRefused, Refusal: "I will not do that.", FinishReason: "stop",
			Model: "gpt-4o-2024-08-06", ResponseID: "c-1", Usage: model.Usage{Input: 812, Output: 64, Reported: true}}},
		{"length with text", 200, cut, model.Answer{Kind: model.Truncated, Reason: model.OutputLimit, Text: `{"items":[{"na`,
			FinishReason: "length", Model: "gpt-4o-2024-08-06", ResponseID: "c-1", Usage: model.Usage{Input: 812, Output: 64, Reported: true}}},
		{"length by reasoning", 200, reasoned, model.Answer{Kind: model.Truncated, Reason: model.ReasoningLimit, FinishReason: "length",
			Model: "o3", ResponseID: "c-1", Usage: model.Usage{Input: 812, Output: 2000, Reasoning: 2000, Reported: true}}},
		{"no choices", 200, noChoices, model.Answer{Kind: model.Empty}},
		{"no choices, prompt filtered", 200, noChoicesFiltered, model.Answer{Kind: model.PromptFiltered,
			Filters: []model.Filter{{Category: "hate", Severity: "high", Prompt: true}}}},
		{"blank text", 200, stop(`" \n"`, ""), model.Answer{Kind: model.Empty, FinishReason: "stop"}},
		{"null text", 200, stop(`null`, ""), model.Answer{Kind: model.Empty, FinishReason: "stop"}},
		{"unknown finish reason", 200, `{"choices":[{"finish_reason":"pause","message":{"content":"half"}}]}`,
			model.Answer{Kind: model.Empty, FinishReason: "pause"}},
		{"no finish reason", 200, `{"choices":[{"message":{"content":"half"}}]}`, model.Answer{Kind: model.Empty}},
		{"answer", 200, fenced, model.Answer{Kind: model.Answered, Text: "```json\n{}\n```", FinishReason: "stop",
			Model: "gpt-4o-2024-08-06", Fingerprint: "fp_1", ResponseID: "c-1",
			Usage: model.Usage{Input: 812, Cached: 512, Output: 64, Reasoning: 16, Reported: true}}},
		{"tool calls", 200, `{"choices":[{"finish_reason":"tool_calls","message":{"content":null,"tool_calls":[{"id":"1"}]}}]}`,
			model.Answer{Kind: model.Answered, FinishReason: "tool_calls", ToolCalls: []byte(`[{"id":"1"}]`)}},
		{"filter did not run", 200, stop(`"text"`, `,"content_filter_result":{"error":{"code":"content_filter_error"}}`),
			model.Answer{Kind: model.Answered, Text: "text", FinishReason: "stop", FilterFailed: true}},
		{"odd usage and filters", 200, `{"choices":[{"finish_reason":"stop","message":{"content":"ok"},"content_filter_results":{` +
			`"custom_blocklists":[{"id":"a"}],"x":1}}],"usage":{"prompt_tokens":-4,"completion_tokens":"many"},"prompt_filter_results":7}`,
			model.Answer{Kind: model.Answered, Text: "ok", FinishReason: "stop", Usage: model.Usage{Reported: true}}},
		{"invalid UTF-8", 200, stop("\"a\xffb\"", ""), model.Answer{Kind: model.Answered, Text: "a\uFFFDb", FinishReason: "stop"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, failed := model.Classify(model.Response{Status: tc.status, Body: []byte(tc.body), Deployment: "d"})
			if failed != nil {
				t.Fatalf("Classify(%d %s) = error %v, want an answer", tc.status, tc.body, failed)
			}
			tc.want.Deployment = "d"
			tc.want.Limits = unknownLimits
			if diff := cmp.Diff(tc.want, *got); diff != "" {
				t.Errorf("Classify(%d %s) -want +got:\n%s", tc.status, tc.body, diff)
			}
		})
	}
}

var unknownLimits = model.RateLimits{LimitTokens: -1, RemainingTokens: -1, LimitRequests: -1, RemainingRequests: -1}

// TestClassifyError holds the table of the package documentation, its second half.
func TestClassifyError(t *testing.T) {
	huge := `{"error":{"message":"` + strings.Repeat("x", 200_000) + `","type":"invalid_request_error","param":null,"code":"invalid_value"}}`
	caller := []string{"messages", "temperature"}
	for _, tc := range []struct {
		name   string
		status int
		body   string
		caller []string
		want   model.ErrorKind
		code   string
	}{
		{"context length", 400, badRequest("context_length_exceeded", "messages"), nil, model.ContextLength, "context_length_exceeded"},
		{"one string too long", 400, badRequest("string_above_max_length", "messages[1].content"), nil, model.ContextLength, "string_above_max_length"},
		{"request too large", 413, html, nil, model.ContextLength, ""},
		{"huge message", 400, huge, nil, model.RequestParameter, "invalid_value"},
		{"content of a message", 400, badRequest("invalid_type", "messages[1].content"), nil, model.RequestParameter, "invalid_type"},
		{"nothing named", 400, badRequest("", ""), nil, model.RequestParameter, ""},
		{"unknown parameter", 422, badRequest("invalid_value", "user_profile"), nil, model.RequestParameter, "invalid_value"},
		{"image", 400, badRequest("invalid_image_format", ""), nil, model.InvalidMedia, "invalid_image_format"},
		{"file", 400, badRequest("unsupported_file", "messages[1].content[0]"), nil, model.InvalidMedia, "unsupported_file"},
		{"max_tokens", 400, badRequest("unsupported_parameter", "max_tokens"), nil, model.Misconfigured, "unsupported_parameter"},
		{"temperature of the catalog", 400, badRequest("unsupported_value", "temperature"), nil, model.Misconfigured, "unsupported_value"},
		{"temperature of the caller", 400, badRequest("unsupported_value", "temperature"), caller, model.RequestParameter, "unsupported_value"},
		{"schema of the catalog", 400, badRequest("", "response_format.json_schema"), nil, model.Misconfigured, ""},
		{"system role", 400, badRequest("unsupported_value", "messages[0].role"), nil, model.Misconfigured, "unsupported_value"},
		{"system role of the caller", 400, badRequest("unsupported_value", "messages[0].role"), caller, model.RequestParameter, "unsupported_value"},
		{"operation", 400, badRequest("OperationNotSupported", ""), nil, model.Misconfigured, "OperationNotSupported"},
		{"400 of a gateway", 400, html, nil, model.Misconfigured, ""},
		{"400 of API Management", 400, `{"statusCode":400,"message":"No."}`, nil, model.Misconfigured, ""},
		{"key", 401, `{"error":{"code":"401","message":"Denied."}}`, nil, model.Misconfigured, "401"},
		{"key, code as a number", 401, `{"error":{"code":401}}`, nil, model.Misconfigured, "401"},
		{"error as a string", 401, `{"error":"denied"}`, nil, model.Misconfigured, ""},
		{"billing", 402, ``, nil, model.QuotaExhausted, ""},
		{"role", 403, html, nil, model.Misconfigured, ""},
		{"deployment", 404, notDeployed, nil, model.Misconfigured, "DeploymentNotFound"},
		{"path", 404, `{"error":{"code":"404","message":"Resource not found"}}`, nil, model.Misconfigured, "404"},
		{"path of API Management", 404, `{"statusCode":404,"message":"Resource not found"}`, nil, model.Misconfigured, ""},
		{"404 of a proxy", 404, html, nil, model.Unavailable, ""},
		{"redirect", 307, ``, nil, model.Misconfigured, ""},
		{"method", 405, ``, nil, model.Misconfigured, ""},
		{"gone", 410, ``, nil, model.Misconfigured, ""},
		{"throttled", 429, throttle, nil, model.Throttled, "429"},
		{"throttled with the word quota", 429, quotaProse, nil, model.Throttled, "429"},
		{"throttled by API Management", 429, apim429, nil, model.Throttled, ""},
		{"capacity", 429, `{"error":{"code":"NoCapacity"}}`, nil, model.Throttled, "NoCapacity"},
		{"throttled, no body", 429, ``, nil, model.Throttled, ""},
		{"quota exhausted", 429, noQuota, nil, model.QuotaExhausted, "insufficient_quota"},
		{"request timeout", 408, ``, nil, model.Unavailable, ""},
		{"conflict", 409, ``, nil, model.Unavailable, ""},
		{"client closed", 499, ``, nil, model.Unavailable, ""},
		{"internal", 500, `{"error":{"code":"InternalServerError"}}`, nil, model.Unavailable, "InternalServerError"},
		{"bad gateway", 502, html, nil, model.Unavailable, ""},
		{"overloaded", 529, `{"error":{"type":"overloaded_error"}}`, nil, model.Unavailable, ""},
		{"200 with HTML", 200, html, nil, model.Unavailable, "invalid_response"},
		{"200 without body", 200, ``, nil, model.Unavailable, "invalid_response"},
		{"200 with null", 200, `null`, nil, model.Unavailable, "invalid_response"},
		{"200 with other JSON", 200, `{"object":"list","data":[]}`, nil, model.Unavailable, "invalid_response"},
		{"200 cut", 200, fenced[:len(fenced)-9], nil, model.Unavailable, "invalid_response"},
		{"200 with overload", 200, `{"error":{"code":"overloaded"}}`, nil, model.Unavailable, "overloaded"},
		{"200 with throttling", 200, throttle, nil, model.Throttled, "429"},
		{"200 with quota", 200, noQuota, nil, model.QuotaExhausted, "insufficient_quota"},
		{"204", 204, ``, nil, model.Unavailable, ""},
		{"status 0", 0, ``, nil, model.Unavailable, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, got := model.Classify(model.Response{Status: tc.status, Body: []byte(tc.body), CallerParams: tc.caller})
			if answer != nil {
				t.Fatalf("Classify(%d %.80s) = answer %s, want an error", tc.status, tc.body, answer.Kind)
			}
			if got.Kind != tc.want || got.Code != tc.code || got.Status != tc.status || !got.Sent {
				t.Errorf("Classify(%d %.80s) = %+v (code %q, status %d, sent %v), want %s, code %q",
					tc.status, tc.body, got.Kind, got.Code, got.Status, got.Sent, tc.want, tc.code)
			}
		})
	}
}

func TestClassifyTooLargeNeedsEvidence(t *testing.T) {
	for _, tc := range []struct {
		name              string
		wait, limitHeader string
		estimate, limit   int
		want              model.ErrorKind
	}{
		{"a day, over the limit of the header", "86400", "10000", 12_000, 0, model.TooLarge},
		{"a day, near the limit", "86400", "10000", 9_000, 0, model.TooLarge},
		{"a day, over the configured limit", "86400", "", 12_000, 10_000, model.TooLarge},
		{"a day, small request", "86400", "10000", 900, 0, model.Throttled},
		{"a day, limit unknown", "86400", "", 12_000, 0, model.Throttled},
		{"a minute, over the limit", "60", "10000", 12_000, 0, model.Throttled},
		{"no wait, over the limit", "", "10000", 12_000, 0, model.Throttled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{}
			h.Set("Retry-After", tc.wait)
			h.Set("X-Ratelimit-Limit-Tokens", tc.limitHeader)
			_, got := model.Classify(model.Response{Status: 429, Header: h, Body: []byte(throttle), Estimate: tc.estimate, TokenLimit: tc.limit})
			if got.Kind != tc.want {
				t.Errorf("Classify(429, retry-after %s, limit %s/%d, estimate %d) = %s, want %s",
					tc.wait, tc.limitHeader, tc.limit, tc.estimate, got.Kind, tc.want)
			}
		})
	}
}

func TestClassifyRetryAfter(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name   string
		header map[string]string
		want   time.Duration
	}{
		{"none", nil, 0},
		{"seconds", map[string]string{"Retry-After": "7"}, 7 * time.Second},
		{"fractions", map[string]string{"Retry-After": "1.5"}, 1500 * time.Millisecond},
		{"milliseconds", map[string]string{"Retry-After-Ms": "1234"}, 1234 * time.Millisecond},
		{"milliseconds win", map[string]string{"Retry-After-Ms": "1234", "Retry-After": "60"}, 1234 * time.Millisecond},
		{"other milliseconds", map[string]string{"X-Ms-Retry-After-Ms": "900"}, 900 * time.Millisecond},
		{"junk milliseconds", map[string]string{"Retry-After-Ms": "soon", "Retry-After": "3"}, 3 * time.Second},
		{"zero milliseconds", map[string]string{"Retry-After-Ms": "0", "Retry-After": "3"}, 3 * time.Second},
		{"tiny", map[string]string{"Retry-After-Ms": "3"}, model.MinRetryAfter},
		{"zero", map[string]string{"Retry-After": "0"}, 0},
		{"negative", map[string]string{"Retry-After": "-5"}, 0},
		{"NaN", map[string]string{"Retry-After": "NaN"}, 0},
		{"Inf", map[string]string{"Retry-After": "Inf"}, 0},
		{"huge", map[string]string{"Retry-After": "1e18"}, model.MaxRetryAfter},
		{"overflow", map[string]string{"Retry-After": "1e999"}, model.MaxRetryAfter},
		{"negative overflow", map[string]string{"Retry-After": "-1e999"}, 0},
		{"a day", map[string]string{"Retry-After": "86400"}, 24 * time.Hour},
		{"spaces", map[string]string{"Retry-After": " 7 "}, 7 * time.Second},
		{"date", map[string]string{"Retry-After": "Tue, 01 Dec 2026 12:00:30 GMT"}, 30 * time.Second},
		{"date by the peer's clock", map[string]string{"Retry-After": "Tue, 01 Dec 2026 12:00:30 GMT", "Date": "Tue, 01 Dec 2026 12:00:20 GMT"}, 10 * time.Second},
		{"date in the past", map[string]string{"Retry-After": "Tue, 01 Dec 2026 11:00:00 GMT"}, 0},
		{"date in years", map[string]string{"Retry-After": "Tue, 01 Dec 2099 11:00:00 GMT"}, model.MaxRetryAfter},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{}
			for name, value := range tc.header {
				h.Set(name, value)
			}
			_, got := model.Classify(model.Response{Status: 503, Header: h, Now: now})
			if got.RetryAfter != tc.want {
				t.Errorf("Classify(503, %v).RetryAfter = %v, want %v", tc.header, got.RetryAfter, tc.want)
			}
		})
	}
}

func TestClassifyHeaders(t *testing.T) {
	h := http.Header{}
	h.Set("X-Ratelimit-Limit-Tokens", "100000")
	h.Set("X-Ratelimit-Remaining-Tokens", "-1")
	h.Set("X-Ratelimit-Limit-Requests", "99999999999999999999")
	h.Set("X-Ratelimit-Remaining-Requests", "9")
	h.Set("X-Ms-Deployment-Name", "spill")
	h.Set("Apim-Request-Id", "55555555-5555")
	got, _ := model.Classify(model.Response{Status: 200, Header: h, Body: []byte(fenced), Deployment: "ptu"})
	want := model.RateLimits{LimitTokens: 100_000, RemainingTokens: -1, LimitRequests: -1, RemainingRequests: 9}
	if got.Limits != want || got.Deployment != "spill" || got.RequestID != "55555555-5555" {
		t.Errorf("Classify = limits %+v, deployment %q, request id %q, want %+v, spill, 55555555-5555", got.Limits, got.Deployment, got.RequestID, want)
	}
}

func FuzzClassify(f *testing.F) {
	for _, body := range []string{promptFilter, outputFilterPartial, refusal, cut, reasoned, noChoices, fenced, throttle, noQuota, apim429,
		notDeployed, html, "", "null", "[]", `{"error":{}}`, `{"choices":[null]}`, `{"choices":[{"message":null}]}`,
		`{"choices":[{"finish_reason":{},"message":{"tool_calls":[ ]}}]}`, `{"error":{"innererror":[],"code":{"a":1}}}`} {
		for _, status := range []int{200, 400, 404, 429, 503} {
			f.Add(status, "7", body)
		}
	}
	answers := []model.Kind{model.Answered, model.Truncated, model.PromptFiltered, model.OutputFiltered, model.ModelRefused, model.Empty}
	failures := []model.ErrorKind{model.ContextLength, model.RequestParameter, model.InvalidMedia, model.TooLarge, model.Throttled,
		model.QuotaExhausted, model.Misconfigured, model.Unavailable}
	f.Fuzz(func(t *testing.T, status int, wait, body string) {
		h := http.Header{"Retry-After": {wait}, "Retry-After-Ms": {wait}, "X-Ratelimit-Limit-Tokens": {wait}}
		answer, failed := model.Classify(model.Response{Status: status, Header: h, Body: []byte(body), Host: body, Deployment: body, Estimate: 1 << 30})
		if (answer == nil) == (failed == nil) {
			t.Fatalf("Classify(%d, %q) = %v, %v, want exactly one", status, body, answer, failed)
		}
		if answer != nil {
			if !slices.Contains(answers, answer.Kind) {
				t.Errorf("Classify(%d, %q).Kind = %q", status, body, answer.Kind)
			}
			if answer.Text != "" && answer.Kind != model.Answered && answer.Kind != model.Truncated {
				t.Errorf("Classify(%d, %q) is %s and has text %q", status, body, answer.Kind, answer.Text)
			}
			if answer.Kind == model.Answered && answer.Text == "" && answer.ToolCalls == nil {
				t.Errorf("Classify(%d, %q) is answered and empty", status, body)
			}
			return
		}
		if !slices.Contains(failures, failed.Kind) {
			t.Errorf("Classify(%d, %q).Kind = %q", status, body, failed.Kind)
		}
		if d := failed.RetryAfter; d != 0 && (d < model.MinRetryAfter || d > model.MaxRetryAfter) {
			t.Errorf("Classify(%d, retry-after %q).RetryAfter = %v", status, wait, d)
		}
		text := failed.Error()
		if len(text) > 400 || strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }) {
			t.Errorf("Classify(%d, %q).Error() = %q, want one printable line", status, body, text)
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	long := strings.Replace(fenced, "```json", strings.Repeat("word ", 2000), 1)
	for _, bc := range []struct {
		name   string
		status int
		body   string
	}{
		{"answer=300B", 200, fenced}, {"answer=10KiB", 200, long}, {"throttled", 429, throttle}, {"filtered", 400, promptFilter},
	} {
		b.Run(bc.name, func(b *testing.B) {
			r := model.Response{Status: bc.status, Body: []byte(bc.body), Header: http.Header{"Retry-After": {"7"}}}
			b.ReportAllocs()
			for b.Loop() {
				model.Classify(r)
			}
		})
	}
}
