package modeltest_test

import (
	"encoding/json"
	"testing"

	"millrace/test/modeltest"
)

// FuzzServerBody holds that any body gets one JSON answer, that what was refused is
// not charged, and that no answer costs more than was charged for it.
func FuzzServerBody(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", `{"messages":[]}`, body("x", 100), body("x", 1),
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"n":2,"stop":"e","seed":1}`,
		`{"messages":[{"role":"user","content":"json"}],"response_format":{"type":"json_object"}}`,
		`{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#"},"minItems":2}},"required":["a"]}}}}`,
		`{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":{"type":"object","properties":{"a":{"anyOf":[{"type":"null"}]}},"required":["a"],"additionalProperties":false}}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": {TPM: 1_000_000, ReasoningTokens: 7}}}
		w := post(t, s, "d", body)
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("response %d = %q, want JSON", w.Code, w.Body)
		}
		st := s.Stats()
		if (w.Code == 200) != (st.Calls == 1) || st.Statuses[w.Code] != 1 {
			t.Errorf("status %d with Stats() = %+v", w.Code, st)
		}
		if st.Billed() > st.Charged || s.PeakMinute("d") != st.Charged {
			t.Errorf("billed %d, charged %d, peak %d: want no more billed than charged, and that to be the peak", st.Billed(), st.Charged, s.PeakMinute("d"))
		}
	})
}

func BenchmarkServer(b *testing.B) {
	s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": {TPM: 1 << 40, RPM: 1 << 30}}}
	request := body("a document", 100)
	for b.Loop() {
		post(b, s, "d", request)
	}
}
