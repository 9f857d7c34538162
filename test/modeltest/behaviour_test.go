package modeltest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/test/modeltest"
	"millrace/test/pipe"
)

// serve puts a server behind a listener in memory and returns a client for it.
func serve(t *testing.T, s *modeltest.Server) *http.Client {
	t.Helper()
	l := &pipe.Listener{}
	s.ServeOn(l)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }
	// A connection that is given to the transport as TLS lets https URLs travel in
	// the clear, for clients that refuse to send credentials over http.
	transport := &http.Transport{DialContext: dial, DialTLSContext: dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return &http.Client{Transport: transport}
}

const endpoint = "https://model.test/openai/deployments/d/chat/completions?api-version=2024-10-21"

func TestServerBehavesOnDemand(t *testing.T) {
	file, err := modeltest.ParseReply([]byte("HTTP/1.1 418 I'm a teapot\nContent-Type: text/plain\nRetry-After: soon\n\nshort and stout"))
	if err != nil {
		t.Fatal(err)
	}
	header := func(name string, values ...string) http.Header { return http.Header{name: values} }
	for _, tt := range []struct {
		name      string
		behaviour modeltest.Behaviour
		status    int
		body      []string // that the body contains
		header    http.Header
		calls     int
		billed    int
	}{
		{"answer", modeltest.Behaviour{}, 200, []string{`"finish_reason":"stop"`, sum("x")}, nil, 1, 37},
		{"fenced text", modeltest.Behaviour{Text: "```json\n{}\n```"}, 200, []string{"```json"}, nil, 1, 7},
		{"prompt filtered", modeltest.Behaviour{Kind: modeltest.PromptFiltered}, 400,
			[]string{`"code":"content_filter"`, `"param":"prompt"`, `"ResponsibleAIPolicyViolation"`, `"violence":{"filtered":true,"severity":"medium"}`}, nil, 1, 3},
		{"output filtered", modeltest.Behaviour{Kind: modeltest.OutputFiltered}, 200,
			[]string{`"finish_reason":"content_filter"`, `"message":{"role":"assistant"}`, `"filtered":true`}, nil, 1, 3},
		{"output filtered and cut", modeltest.Behaviour{Kind: modeltest.OutputFilteredCut}, 200,
			[]string{`"finish_reason":"content_filter"`, `"content":"Digest`, `"filtered":true`}, nil, 1, 20},
		{"refusal", modeltest.Behaviour{Kind: modeltest.ModelRefusal}, 200, []string{`"content":null,"refusal":"I cannot`, `"finish_reason":"stop"`}, nil, 1, 9},
		{"no choices", modeltest.Behaviour{Kind: modeltest.NoChoices}, 200, []string{`"choices":[]`, `"usage":null`}, nil, 1, 3},
		{"empty text", modeltest.Behaviour{Kind: modeltest.EmptyText}, 200, []string{`"content":""`, `"finish_reason":"stop"`}, nil, 1, 3},
		{"output limit", modeltest.Behaviour{Kind: modeltest.OutputLimit}, 200, []string{`"content":"Digest`, `"finish_reason":"length"`}, nil, 1, 20},
		{"reasoning limit", modeltest.Behaviour{Kind: modeltest.ReasoningLimit}, 200,
			[]string{`"content":""`, `"finish_reason":"length"`, `"reasoning_tokens":100`}, nil, 1, 103},
		{"unauthorized", modeltest.Unauthorized(), 401, []string{`"code":"401"`}, nil, 0, 0},
		{"forbidden", modeltest.Forbidden(), 403, []string{`"code":"PermissionDenied"`}, nil, 0, 0},
		{"no deployment", modeltest.DeploymentNotFound(), 404, []string{`"code":"DeploymentNotFound"`}, nil, 0, 0},
		{"quota", modeltest.InsufficientQuota(), 429, []string{`"code":"insufficient_quota"`}, header("Retry-After-Ms"), 0, 0},
		{"capacity", modeltest.Capacity(1500 * time.Millisecond), 429, []string{"high demand"},
			http.Header{"Retry-After-Ms": {"1500"}, "Retry-After": {"2"}, "X-Ratelimit-Remaining-Tokens": {"100000"}}, 0, 0},
		{"absurd wait", modeltest.Throttled(header("retry-after", "-1e18")), 429, []string{"token rate limit"}, header("Retry-After", "-1e18"), 0, 0},
		{"gateway", modeltest.BadGateway(), 502, []string{"<html>"}, header("Content-Type", "text/html"), 0, 0},
		{"server error", modeltest.ServerError(500), 500, []string{`"type":"server_error"`}, nil, 0, 0},
		{"context length", modeltest.ContextLength(), 400, []string{`"code":"context_length_exceeded"`}, nil, 0, 0},
		{"image", modeltest.InvalidImage(), 400, []string{`"code":"invalid_image_format"`}, nil, 0, 0},
		{"from a file", file, 418, []string{"short and stout"}, header("Retry-After", "soon"), 0, 0},
		{"a reply that was paid", modeltest.Behaviour{Kind: modeltest.Reply, Charged: true, Delay: time.Second}, 200, nil, nil, 1, 0},
		{"headers", modeltest.Behaviour{Header: http.Header{"x-ratelimit-limit-tokens": nil, "x-ratelimit-remaining-tokens": {"99999999999999999999"}}}, 200, nil,
			http.Header{"X-Ratelimit-Limit-Tokens": nil, "X-Ratelimit-Remaining-Tokens": {"99999999999999999999"}}, 1, 37},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &modeltest.Server{
					Deployments: map[string]modeltest.Deployment{"d": {TPM: 100_000}},
					Behave:      func(modeltest.Call) modeltest.Behaviour { return tt.behaviour },
				}
				resp, err := serve(t, s).Post(endpoint, "application/json", strings.NewReader(body("x", 100)))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != tt.status {
					t.Errorf("response = %d, %v, want %d", resp.StatusCode, err, tt.status)
				}
				for _, want := range tt.body {
					if !strings.Contains(string(got), want) {
						t.Errorf("body = %s, want %s in it", got, want)
					}
				}
				for name, want := range tt.header {
					if got := resp.Header.Values(name); strings.Join(got, "|") != strings.Join(want, "|") {
						t.Errorf("%s = %q, want %q", name, got, want)
					}
				}
				st := s.Stats()
				if st.Calls != tt.calls || st.Charged != 103*tt.calls || st.Billed() != tt.billed || st.Statuses[tt.status] != 1 {
					t.Errorf("Stats() = %+v, want %d calls and %d tokens billed", st, tt.calls, tt.billed)
				}
			})
		})
	}
}

func TestServerBreaksConnections(t *testing.T) {
	for _, tt := range []struct {
		kind          modeltest.Kind
		calls, billed int
		status        int // that the client sees before the break
	}{
		{modeltest.CutBefore, 0, 0, 0},
		{modeltest.CutAfter, 1, 37, 0},
		{modeltest.CutWithin, 1, 37, 200},
		{modeltest.Hang, 1, 37, 0},
	} {
		t.Run(tt.kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &modeltest.Server{Behave: func(modeltest.Call) modeltest.Behaviour { return modeltest.Behaviour{Kind: tt.kind} }}
				client := serve(t, s)
				client.Timeout = 10 * time.Minute
				began := time.Now()
				resp, err := client.Post(endpoint, "application/json", strings.NewReader(body("x", 100)))
				switch {
				case tt.status == 0 && err == nil:
					t.Fatalf("response = %d, want a broken connection", resp.StatusCode)
				case tt.status != 0 && err != nil:
					t.Fatal(err)
				case err == nil:
					_, err = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Errorf("ReadAll() = %v, want an unexpected end", err)
					}
				}
				if took := time.Since(began); (took == client.Timeout) != (tt.kind == modeltest.Hang) {
					t.Errorf("it took %v", took)
				}
				synctest.Wait()
				if st := s.Stats(); st.Calls != tt.calls || st.Billed() != tt.billed || s.CallsOf(sum("x")) != tt.calls {
					t.Errorf("Stats() = %+v, want %d calls and %d tokens billed", st, tt.calls, tt.billed)
				}
			})
		})
	}
}

func TestServerCloseEndsCallsThatHang(t *testing.T) {
	s := &modeltest.Server{Behave: func(modeltest.Call) modeltest.Behaviour { return modeltest.Behaviour{Kind: modeltest.Hang} }}
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := http.Post("http://"+addr.String()+"/openai/deployments/d/chat/completions?api-version=v", "application/json", strings.NewReader(body("x", 100)))
		failed <- err
	}()
	if err := s.AwaitCalls(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("the hanging call was answered, want a broken connection")
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close() = %v", err)
	}
	if _, err := s.Listen(addr.String()); err != nil {
		t.Errorf("Listen() after Close() = %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if _, err := s.Listen("no address"); err == nil {
		t.Error("Listen(no address) = nil, want an error")
	}
}

func TestServerBehavesByAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modeltest.Server{Behave: func(c modeltest.Call) modeltest.Behaviour {
			if c.User == "bad" && c.Attempt < 3 && c.SHA256 == sum("bad") && c.Deployment == "d" && c.System == "Summarise." && c.Charge == 104 {
				return modeltest.ServerError(503)
			}
			return modeltest.Behaviour{}
		}}
		var got []int
		for range 3 {
			got = append(got, post(t, s, "d", body("good", 100)).Code, post(t, s, "d", body("bad", 100)).Code)
		}
		want := []int{200, 503, 200, 503, 200, 200}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("statuses = %v, want %v", got, want)
			}
		}
		if s.CallsOf(sum("bad")) != 1 || len(s.Arrivals(sum("bad"))) != 3 {
			t.Errorf("CallsOf(), Arrivals() = %d, %d, want 1, 3", s.CallsOf(sum("bad")), len(s.Arrivals(sum("bad"))))
		}
	})
}

func TestParseReplyRefusesWhatIsNone(t *testing.T) {
	for _, raw := range []string{"", "hello", "HTTP/1.1 abc\n\n", "HTTP/1.1 200 OK\nContent-Length: 10\n\nshort"} {
		if b, err := modeltest.ParseReply([]byte(raw)); err == nil {
			t.Errorf("ParseReply(%q) = %+v, want an error", raw, b)
		}
	}
}
