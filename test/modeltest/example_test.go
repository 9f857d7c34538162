package modeltest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"millrace/test/modeltest"
)

// A deployment of 1,000 tokens per minute whose first call for any document meets a
// proxy that is down.
func Example() {
	s := &modeltest.Server{
		Deployments: map[string]modeltest.Deployment{"summaries": {TPM: 1000}},
		Behave: func(c modeltest.Call) modeltest.Behaviour {
			if c.Attempt == 1 {
				return modeltest.BadGateway()
			}
			return modeltest.Behaviour{}
		},
	}
	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/openai/v1/chat/completions", strings.NewReader(
			`{"model":"summaries","messages":[{"role":"user","content":"A document."}],"max_completion_tokens":600}`))
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		fmt.Println(w.Code, "tokens left:", w.Header().Get("x-ratelimit-remaining-tokens"))
	}
	fmt.Println("calls:", s.Calls(), "peak:", s.PeakMinute("summaries"))
	// Output:
	// 502 tokens left: 1000
	// 200 tokens left: 397
	// 429 tokens left: 397
	// calls: 1 peak: 603
}
