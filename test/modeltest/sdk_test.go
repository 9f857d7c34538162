package modeltest_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/azure"
	"github.com/openai/openai-go/v3/option"

	"millrace/test/modeltest"
)

func params(user string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:               "d",
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Summarise."), openai.UserMessage(user)},
		MaxCompletionTokens: openai.Int(100),
	}
}

// inBubble is an SDK client of a server in memory.
func inBubble(t *testing.T, s *modeltest.Server, more ...option.RequestOption) openai.Client {
	options := []option.RequestOption{
		azure.WithEndpoint("https://model.test", "2024-10-21"), azure.WithAPIKey("key"),
		option.WithHTTPClient(serve(t, s)), option.WithMaxRetries(0),
	}
	return openai.NewClient(append(options, more...)...)
}

func TestSDKOverLoopback(t *testing.T) {
	s := &modeltest.Server{APIKey: "key", Deployments: map[string]modeltest.Deployment{"d": {TPM: 1000, RPM: 600}}}
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	}()
	for name, client := range map[string]openai.Client{
		"deployments path": openai.NewClient(azure.WithEndpoint("http://"+addr.String(), "2024-10-21"), azure.WithAPIKey("key"),
			azure.WithUnsafeAllowHTTP(), option.WithMaxRetries(0)),
		"v1 path": openai.NewClient(option.WithBaseURL("http://"+addr.String()+"/openai/v1/"), option.WithAPIKey("key"), option.WithMaxRetries(0)),
	} {
		var resp *http.Response
		got, err := client.Chat.Completions.New(t.Context(), params("a document"), option.WithResponseInto(&resp))
		if err != nil {
			t.Fatalf("%s: New() = %v", name, err)
		}
		if text := got.Choices[0].Message.Content; !strings.Contains(text, sum("a document")) || got.Choices[0].FinishReason != "stop" {
			t.Errorf("%s: answer = %q (%s), want the hash in it", name, text, got.Choices[0].FinishReason)
		}
		if got.Usage.PromptTokens != 5 || got.Usage.TotalTokens != got.Usage.PromptTokens+got.Usage.CompletionTokens {
			t.Errorf("%s: usage = %+v", name, got.Usage)
		}
		if resp.Header.Get("x-ratelimit-limit-tokens") != "1000" || !strings.HasPrefix(got.Model, "gpt-") {
			t.Errorf("%s: limit %q, model %q", name, resp.Header.Get("x-ratelimit-limit-tokens"), got.Model)
		}
	}
	if got := s.CallsPerInput()[sum("a document")]; got != 2 {
		t.Errorf("CallsPerInput() = %d of the document, want 2", got)
	}
}

func TestSDKSeesErrors(t *testing.T) {
	for _, tt := range []struct {
		name      string
		behaviour modeltest.Behaviour
		status    int
		code      string
	}{
		{"filter", modeltest.Behaviour{Kind: modeltest.PromptFiltered}, 400, "content_filter"},
		{"key", modeltest.Unauthorized(), 401, "401"},
		{"deployment", modeltest.DeploymentNotFound(), 404, "DeploymentNotFound"},
		{"quota", modeltest.InsufficientQuota(), 429, "insufficient_quota"},
		{"gateway", modeltest.BadGateway(), 502, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &modeltest.Server{Behave: func(modeltest.Call) modeltest.Behaviour { return tt.behaviour }}
				client := inBubble(t, s)
				_, err := client.Chat.Completions.New(t.Context(), params("x"))
				var e *openai.Error
				if !errors.As(err, &e) || e.StatusCode != tt.status || e.Code != tt.code {
					t.Fatalf("New() = %v, want %d %q", err, tt.status, tt.code)
				}
				if inner := e.JSON.ExtraFields["innererror"].Raw(); (inner != "") != (tt.code == "content_filter") {
					t.Errorf("innererror = %q", inner)
				}
			})
		})
	}
}

func TestSDKSeesRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modeltest.Server{Behave: func(modeltest.Call) modeltest.Behaviour {
			return modeltest.Behaviour{Kind: modeltest.ModelRefusal}
		}}
		client := inBubble(t, s)
		got, err := client.Chat.Completions.New(t.Context(), params("x"))
		if err != nil || got.Choices[0].Message.Refusal == "" || got.Choices[0].Message.Content != "" {
			t.Errorf("New() = %+v, %v, want a refusal without content", got, err)
		}
	})
}

// TestSDKWaitsAsTold lets the client's own retries meet the meter: it comes back
// after retry-after-ms, and that is exactly when there is room.
func TestSDKWaitsAsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": {TPM: 150}}}
		client := inBubble(t, s, option.WithMaxRetries(2))
		began := time.Now()
		for _, user := range []string{"one", "two"} {
			if _, err := client.Chat.Completions.New(t.Context(), params(user)); err != nil {
				t.Fatalf("New(%s) = %v", user, err)
			}
		}
		if got := time.Since(began); got != time.Minute {
			t.Errorf("the second call was answered after %v, want 1m0s", got)
		}
		if got := s.Arrivals(sum("two")); len(got) != 2 || got[1].Sub(got[0]) != time.Minute {
			t.Errorf("Arrivals() = %v, want two a minute apart", got)
		}
	})
}
