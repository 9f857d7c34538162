package modeltest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"millrace/test/modeltest"
)

// body is a request of one user message with a cap on its output.
func body(user string, maxTokens int) string {
	return fmt.Sprintf(`{"messages":[{"role":"system","content":"Summarise."},{"role":"user","content":%q}],"max_completion_tokens":%d}`, user, maxTokens)
}

// post runs one request through the handler, without a network.
func post(t testing.TB, s *modeltest.Server, deployment, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/openai/deployments/"+deployment+"/chat/completions?api-version=2024-10-21", bytes.NewReader([]byte(body)))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// pass lets time go by; in a bubble that takes none.
func pass(d time.Duration) { <-time.After(d) }

type reply struct {
	Model   string
	Choices []struct {
		Index        int
		FinishReason string `json:"finish_reason"`
		Message      struct {
			Content *string
			Refusal *string
		}
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Output struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	Error struct {
		Code, Param, Type, Message string
	}
}

func decode(t testing.TB, w *httptest.ResponseRecorder) reply {
	t.Helper()
	var r reply
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("response %d is no JSON: %v: %s", w.Code, err, w.Body)
	}
	return r
}

func content(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	r := decode(t, w)
	if len(r.Choices) != 1 || r.Choices[0].Message.Content == nil {
		t.Fatalf("response %d has no content: %s", w.Code, w.Body)
	}
	return *r.Choices[0].Message.Content
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}
