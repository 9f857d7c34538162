package modeltest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/test/modeltest"
)

func TestServerAnswersByTheRequestAlone(t *testing.T) {
	s := &modeltest.Server{}
	first := content(t, post(t, s, "d", body("a document", 500)))
	if again := content(t, post(t, s, "d", body("a document", 500))); again != first {
		t.Errorf("second answer = %q, want the first, %q", again, first)
	}
	if !strings.Contains(first, sum("a document")) {
		t.Errorf("answer = %q, want the document's SHA-256 in it", first)
	}
	if other := content(t, post(t, s, "d", strings.Replace(body("a document", 500), "Summarise.", "Translate.", 1))); other == first {
		t.Error("another prompt got the same answer")
	}
	if got := s.CallsOf(sum("a document")); got != 3 || s.Calls() != 3 || len(s.Arrivals(sum("a document"))) != 3 {
		t.Errorf("CallsOf() = %d, want 3", got)
	}
	if got := s.CallsOf("no hash"); got != 0 {
		t.Errorf("CallsOf(no hash) = %d, want 0", got)
	}
}

func TestServerRoutes(t *testing.T) {
	s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": {}}}
	ok := body("x", 10)
	v1 := strings.Replace(ok, "{", `{"model":"d",`, 1)
	for _, tt := range []struct {
		method, target, body string
		status               int
		code                 string
	}{
		{"POST", "/openai/deployments/d/chat/completions?api-version=2024-10-21", ok, 200, ""},
		{"POST", "/openai/v1/chat/completions", v1, 200, ""},
		{"POST", "/openai/v1/chat/completions", ok, 404, "DeploymentNotFound"},
		{"POST", "/openai/deployments/e/chat/completions?api-version=2024-10-21", ok, 404, "DeploymentNotFound"},
		{"POST", "/openai/deployments/d/chat/completions", ok, 404, "404"},
		{"POST", "/openai/deployments/d/embeddings?api-version=2024-10-21", ok, 404, "404"},
		{"POST", "/openai/deployments/a/b/chat/completions?api-version=2024-10-21", ok, 404, "404"},
		{"POST", "/v1/chat/completions", v1, 404, "404"},
		{"GET", "/openai/v1/chat/completions", "", 404, "404"},
		{"POST", "/openai/v1/chat/completions", strings.Repeat(" ", 32<<20) + "{}", 413, "request_too_large"},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(tt.method, tt.target, strings.NewReader(tt.body)))
		if got := decode(t, w); w.Code != tt.status || got.Error.Code != tt.code {
			t.Errorf("%s %s = %d %q, want %d %q", tt.method, tt.target, w.Code, got.Error.Code, tt.status, tt.code)
		}
		if w.Header().Get("apim-request-id") == "" {
			t.Errorf("%s %s: no apim-request-id", tt.method, tt.target)
		}
	}
}

func TestServerCredentials(t *testing.T) {
	s := &modeltest.Server{APIKey: "old", Token: func(b string) bool { return b == "entra" }}
	try := func(name, value string) int {
		r := httptest.NewRequest(http.MethodPost, "/openai/deployments/d/chat/completions?api-version=v", strings.NewReader(body("x", 10)))
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code == 401 && decode(t, w).Error.Code != "401" {
			t.Errorf("body of 401 = %s, want code 401", w.Body)
		}
		return w.Code
	}
	for _, tt := range []struct {
		name, value string
		want        int
	}{
		{"api-key", "old", 200}, {"Authorization", "Bearer old", 200}, {"Authorization", "Bearer entra", 200},
		{"api-key", "new", 401}, {"api-key", "", 401}, {"Authorization", "Bearer ", 401}, {"api-key", "entra", 401},
	} {
		if got := try(tt.name, tt.value); got != tt.want {
			t.Errorf("%s: %q = %d, want %d", tt.name, tt.value, got, tt.want)
		}
	}
	s.SetAPIKey("new")
	if try("api-key", "old") != 401 || try("api-key", "new") != 200 {
		t.Error("after SetAPIKey(new): the old key still works, or the new one does not")
	}
}

func TestServerValidates(t *testing.T) {
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	message := func(more string) string {
		return `{"messages":[{"role":"user","content":"json please"}],"max_completion_tokens":50` + more + `}`
	}
	image := func(url string) string {
		return `{"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"` + url + `"}}]}],"max_completion_tokens":50}`
	}
	schema := func(strict bool, schema string) string {
		return message(fmt.Sprintf(`,"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":%t,"schema":%s}}`, strict, schema))
	}
	for _, tt := range []struct {
		name, body  string
		status      int
		code, param string
	}{
		{"plain", message(""), 200, "", ""},
		{"nulls", message(`,"stop":null,"seed":null,"response_format":null,"tool_choice":null`), 200, "", ""},
		{"sampling", message(`,"temperature":0,"top_p":0.5,"seed":7,"stop":["x"],"user":"u"`), 200, "", ""},
		{"tools", message(`,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"`), 200, "", ""},
		{"image", image("data:image/png;base64," + png), 200, "", ""},
		{"not JSON", "{", 400, "", ""},
		{"not an object", "[]", 400, "", ""},
		{"null", "null", 400, "", ""},
		{"trailing data", message("") + "{}", 400, "", ""},
		{"not UTF-8", message(",\"user\":\"\xff\""), 400, "", ""},
		{"no messages", `{"messages":[]}`, 400, "missing_required_parameter", "messages"},
		{"messages of another type", `{"messages":"hi"}`, 400, "invalid_type", "messages"},
		{"unknown role", `{"messages":[{"role":"boss","content":"x"}]}`, 400, "invalid_value", "messages"},
		{"null content", `{"messages":[{"role":"user","content":null}]}`, 400, "invalid_type", "messages"},
		{"unknown part", `{"messages":[{"role":"user","content":[{"type":"video"}]}]}`, 400, "invalid_value", "messages"},
		{"image elsewhere", image("https://example.com/a.png"), 400, "invalid_image_url", ""},
		{"image that is none", image("data:image/png;base64,aGVsbG8="), 400, "invalid_image_format", ""},
		{"unknown parameter", message(`,"wisdom":1`), 400, "unknown_parameter", "wisdom"},
		{"streaming", message(`,"stream":true`), 400, "unsupported_value", "stream"},
		{"max_tokens", `{"messages":[{"role":"user","content":"x"}],"max_tokens":5}`, 400, "unsupported_parameter", "max_tokens"},
		{"too many choices", message(`,"n":1000`), 400, "invalid_value", "n"},
		{"no room for output", `{"messages":[{"role":"user","content":"x"}],"max_completion_tokens":0}`, 400, "integer_below_min_value", "max_completion_tokens"},
		{"too much output", `{"messages":[{"role":"user","content":"x"}],"max_completion_tokens":1001}`, 400, "invalid_value", "max_completion_tokens"},
		{"hot", message(`,"temperature":3`), 400, "invalid_value", "temperature"},
		{"temperature of another type", message(`,"temperature":"1"`), 400, "invalid_type", "temperature"},
		{"too many stops", message(`,"stop":["a","b","c","d","e"]`), 400, "array_above_max_length", "stop"},
		{"forced tool", message(`,"tool_choice":"required"`), 400, "unsupported_value", "tool_choice"},
		{"unknown format", message(`,"response_format":{"type":"xml"}`), 400, "invalid_value", "response_format.type"},
		{"format without type", message(`,"response_format":{}`), 400, "missing_required_parameter", "response_format.type"},
		{"json without the word", `{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}}`, 400, "", "messages"},
		{"schema without properties", schema(true, `{"type":"object","additionalProperties":false}`), 200, "", ""},
		{"schema that is open", schema(true, `{"type":"object","properties":{}}`), 400, "", "response_format"},
		{"schema with an option", schema(true, `{"type":"object","properties":{"a":{"type":"string"}},"required":[],"additionalProperties":false}`), 400, "", "response_format"},
		{"schema with an option, not strict", schema(false, `{"type":"object","properties":{"a":{"type":"string"}}}`), 200, "", ""},
		{"schema in a circle", schema(false, `{"type":"object","properties":{"a":{"$ref":"#/properties/a"}},"required":["a"]}`), 400, "", "response_format"},
		{"schema without an end", schema(false, `{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`), 400, "", "response_format"},
		{"too long", `{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 2000) + `"}],"max_completion_tokens":50}`, 400, "context_length_exceeded", "messages"},
		{"too long with its answer", `{"messages":[{"role":"user","content":"` + strings.Repeat("four", 1500) + `"}],"max_completion_tokens":501}`, 400, "context_length_exceeded", "messages"},
	} {
		s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": {ContextWindow: 2000, MaxOutput: 1000, TPM: 100_000}}}
		w := post(t, s, "d", tt.body)
		got := decode(t, w)
		if w.Code != tt.status || got.Error.Code != tt.code || got.Error.Param != tt.param {
			t.Errorf("%s: response = %d %q %q, want %d %q %q (%s)", tt.name, w.Code, got.Error.Code, got.Error.Param, tt.status, tt.code, tt.param, w.Body)
		}
		if want := (tt.status == 200); (s.Calls() == 1) != want {
			t.Errorf("%s: Calls() = %d", tt.name, s.Calls())
		}
	}
}

func TestServerCountsTokens(t *testing.T) {
	s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{
		"d":         {},
		"long":      {AnswerTokens: 300},
		"reasoning": {ReasoningTokens: 200},
		"dense":     {CharactersPerToken: 1},
		"older":     {MaxTokens: true, MaxOutput: 900},
	}}
	for _, tt := range []struct {
		name, deployment, body                 string
		prompt, completion, reasoning, charged int
		finish                                 string
	}{
		{"a prompt is its characters over four", "d", body("äöü", 100), 4, 34, 0, 104, "stop"},
		{"an answer is cut at its cap", "d", body("x", 5), 3, 5, 0, 8, "length"},
		{"an answer can be long", "long", body("x", 400), 3, 300, 0, 403, "stop"},
		{"reasoning is output", "reasoning", body("x", 400), 3, 234, 200, 403, "stop"},
		{"reasoning can take all of it", "reasoning", body("x", 150), 3, 150, 150, 153, "length"},
		{"the ratio can be set", "dense", body("x", 400), 11, 136, 0, 411, "stop"},
		{"every choice counts", "d", strings.Replace(body("x", 100), "{", `{"n":3,`, 1), 3, 102, 0, 303, "stop"},
		{"no cap is charged as the model's", "older", `{"messages":[{"role":"user","content":"x"}]}`, 1, 34, 0, 901, "stop"},
		{"max_tokens is a cap on older models", "older", `{"messages":[{"role":"user","content":"x"}],"max_tokens":5}`, 1, 5, 0, 6, "length"},
	} {
		before := s.Stats()
		w := post(t, s, tt.deployment, tt.body)
		r := decode(t, w)
		if r.Usage == nil || r.Usage.Prompt != tt.prompt || r.Usage.Completion != tt.completion || r.Usage.Output.Reasoning != tt.reasoning {
			t.Errorf("%s: usage = %+v, want %d, %d of which reasoning %d", tt.name, r.Usage, tt.prompt, tt.completion, tt.reasoning)
			continue
		}
		if got := r.Choices[0].FinishReason; got != tt.finish {
			t.Errorf("%s: finish_reason = %q, want %q", tt.name, got, tt.finish)
		}
		after := s.Stats()
		if got := after.Charged - before.Charged; got != tt.charged {
			t.Errorf("%s: charged %d, want %d", tt.name, got, tt.charged)
		}
		if got := after.Billed() - before.Billed(); got != tt.prompt+tt.completion {
			t.Errorf("%s: billed %d, want %d", tt.name, got, tt.prompt+tt.completion)
		}
	}
	if w := post(t, s, "reasoning", strings.Replace(body("x", 100), "{", `{"temperature":0.5,`, 1)); w.Code != 400 {
		t.Errorf("temperature of a reasoning model = %d, want 400", w.Code)
	}
}

func TestServerCachesLongPrompts(t *testing.T) {
	s := &modeltest.Server{}
	long := strings.Replace(body("x", 100), "Summarise.", strings.Repeat("word", 1300), 1)
	for i, want := range []int{0, 1280, 1280} {
		if got := decode(t, post(t, s, "d", long)).Usage.Details.Cached; got != want {
			t.Errorf("call %d: cached_tokens = %d, want %d", i, got, want)
		}
	}
	if got := s.Stats().Cached; got != 2560 {
		t.Errorf("Stats().Cached = %d, want 2560", got)
	}
}

func TestServerStopsAtAStopSequence(t *testing.T) {
	s := &modeltest.Server{}
	got := content(t, post(t, s, "d", strings.Replace(body("x", 100), "{", `{"stop":" under prompt",`, 1)))
	if !strings.HasSuffix(got, sum("x")) {
		t.Errorf("answer = %q, want it to end with the hash", got)
	}
}

func TestServerTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []modeltest.Event
		s := &modeltest.Server{
			Latency: func(prompt, output int) time.Duration {
				return time.Duration(prompt)*time.Millisecond + time.Duration(output)*20*time.Millisecond
			},
			Observe: func(e modeltest.Event) { events = append(events, e) },
		}
		began := time.Now()
		post(t, s, "d", body("x", 100))
		if got, want := time.Since(began), 3*time.Millisecond+34*20*time.Millisecond; got != want {
			t.Errorf("a call took %v, want %v", got, want)
		}
		want := modeltest.Event{
			Arrival: began, Took: 683 * time.Millisecond, Deployment: "d", SHA256: sum("x"), Attempt: 1,
			Admitted: true, Status: 200, Charge: 103, Prompt: 3, Completion: 34,
		}
		if len(events) != 1 || events[0] != want {
			t.Errorf("events = %+v, want one of %+v", events, want)
		}
	})
}

func TestServerBillsAClientThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modeltest.Server{Latency: func(int, int) time.Duration { return time.Minute }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
					t.Errorf("ServeHTTP() panicked with %v, want ErrAbortHandler", err)
				}
			}()
			r := httptest.NewRequest(http.MethodPost, "/openai/deployments/d/chat/completions?api-version=v", strings.NewReader(body("x", 100)))
			s.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		}()
		if st := s.Stats(); st.Calls != 1 || st.Billed() != 37 || st.Cut != 1 || len(st.Statuses) != 0 {
			t.Errorf("Stats() = %+v, want one call of 37 tokens, cut", st)
		}
	})
}

func TestServerAwaitsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modeltest.Server{}
		go func() {
			for range 3 {
				pass(time.Second)
				post(t, s, "d", body("x", 100))
			}
		}()
		began := time.Now()
		if err := s.AwaitCalls(t.Context(), 3); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("AwaitCalls(3) = %v after %v, want nil after 3s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.AwaitCalls(ctx, 4); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AwaitCalls(4) = %v, want the context's error", err)
		}
		if got := s.CallsPerInput(); len(got) != 1 || got[sum("x")] != 3 {
			t.Errorf("CallsPerInput() = %v, want 3 of one input", got)
		}
	})
}
