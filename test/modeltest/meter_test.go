package modeltest_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"millrace/test/modeltest"
)

// text is a document that makes, with its prompt, 41 characters: 11 tokens. So
// body(text, n) is charged n+11.
const text = "0123456789012345678901234567890"

func TestMeterWindows(t *testing.T) {
	type step struct {
		at     time.Duration
		output int // charge is 11 more
		status int
		retry  string // retry-after-ms
		left   string // x-ratelimit-remaining-tokens
	}
	tests := []struct {
		name       string
		deployment modeltest.Deployment
		steps      []step
		peak       int
	}{
		{"a sliding minute returns each charge after 60 s", modeltest.Deployment{TPM: 1000}, []step{
			{0, 489, 200, "", "500"},
			{30 * time.Second, 489, 200, "", "0"},
			{59 * time.Second, 489, 429, "1000", "0"},
			{60 * time.Second, 489, 200, "", "0"},
			{60 * time.Second, 489, 429, "30000", "0"},
			{90 * time.Second, 489, 200, "", "0"},
		}, 1000},
		{"a fixed minute admits twice the limit across its edge", modeltest.Deployment{TPM: 1000, FixedMinute: true}, []step{
			{59 * time.Second, 989, 200, "", "0"},
			{59500 * time.Millisecond, 489, 429, "500", "0"},
			{60 * time.Second, 989, 200, "", "0"},
			{61 * time.Second, 489, 429, "59000", "0"},
		}, 2000},
		{"a refund frees what was not used", modeltest.Deployment{TPM: 1000, Refund: true, AnswerTokens: 100}, []step{
			{0, 939, 200, "", "50"},
			{time.Second, 789, 200, "", "89"}, // 111 were used, 800 are charged
			{2 * time.Second, 789, 429, "58000", "778"},
		}, 1750},
		{"rejected requests can count", modeltest.Deployment{TPM: 1000, CountRejected: true}, []step{
			{0, 589, 200, "", "400"},
			{30 * time.Second, 489, 429, "30000", "0"},
			{60 * time.Second, 589, 429, "30000", "0"},
		}, 600},
		{"more than the whole limit can never pass", modeltest.Deployment{TPM: 1000}, []step{
			{0, 990, 429, "86400000", "1000"},
			{0, 989, 200, "", "0"},
		}, 1000},
		{"requests are judged in tens of seconds", modeltest.Deployment{RPM: 12}, []step{
			{0, 10, 200, "", ""},
			{4 * time.Second, 10, 200, "", ""},
			{5 * time.Second, 10, 429, "5000", ""},
			{10 * time.Second, 10, 200, "", ""},
			{10 * time.Second, 10, 429, "4000", ""},
		}, 63},
		{"and in single ones", modeltest.Deployment{RPM: 60, SecondBursts: true}, []step{
			{0, 10, 200, "", ""},
			{500 * time.Millisecond, 10, 429, "500", ""},
			{time.Second, 10, 200, "", ""},
		}, 42},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now() // a bubble begins at a full minute
				s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": tt.deployment}}
				for i, st := range tt.steps {
					pass(st.at - time.Since(began))
					w := post(t, s, "d", body(text, st.output))
					got := fmt.Sprint(w.Code, w.Header().Get("retry-after-ms"), w.Header().Get("x-ratelimit-remaining-tokens"))
					want := fmt.Sprint(st.status, st.retry, st.left)
					if got != want {
						t.Errorf("step %d at %v: status, retry, left = %s, want %s (%s)", i, st.at, got, want, w.Body)
					}
				}
				if got := s.PeakMinute("d"); got != tt.peak {
					t.Errorf("PeakMinute() = %d, want %d", got, tt.peak)
				}
			})
		})
	}
}

func TestMeterHeadersTellBothLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": {TPM: 1000, RPM: 60}}}
		post(t, s, "d", body(text, 89))
		pass(2500 * time.Millisecond)
		h := post(t, s, "d", body(text, 189)).Header()
		for name, want := range map[string]string{
			"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "700", "x-ratelimit-reset-tokens": "60",
			"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "8", "x-ratelimit-reset-requests": "10",
			"retry-after": "",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
	})
}

func TestMeterNamesTheLimitInItsRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"tokens": {TPM: 100}, "calls": {RPM: 1}}}
		for name, want := range map[string]string{
			"tokens": "Requests to this deployment have exceeded the token rate limit of its pricing tier. Please retry after 60 seconds.",
			"calls":  "Requests to this deployment have exceeded the call rate limit of its pricing tier. Please retry after 10 seconds.",
		} {
			post(t, s, name, body(text, 50))
			w := post(t, s, name, body(text, 50))
			if got := decode(t, w).Error; w.Code != http.StatusTooManyRequests || got.Message != want || got.Code != "429" {
				t.Errorf("%s: refusal = %d %+v, want 429 %q", name, w.Code, got, want)
			}
		}
		if st := s.Stats(); st.Tokens429 != 1 || st.Requests429 != 1 || st.Calls != 2 || st.Charged != 122 {
			t.Errorf("Stats() = %+v, want one refusal of each kind, 2 calls and 122 tokens", st)
		}
	})
}

func TestServerSharesALimitWithOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": {TPM: 1000}}}
		if !s.Spend("d", 800) || s.Spend("d", 300) || s.Spend("unknown", 1) {
			t.Error("Spend() = admitted what does not fit, or refused what does")
		}
		if w := post(t, s, "d", body(text, 289)); w.Code != 429 {
			t.Errorf("status = %d beside 800 tokens of another consumer, want 429", w.Code)
		}
		if w := post(t, s, "d", body(text, 189)); w.Code != 200 {
			t.Errorf("status = %d for the 200 tokens left, want 200", w.Code)
		}
		if got, offered := s.PeakMinute("d"), s.PeakOffered("d"); got != 200 || offered != 500 {
			t.Errorf("PeakMinute(), PeakOffered() = %d, %d, want 200, 500", got, offered)
		}
	})
}

func TestServerLimitChangesWhileServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": {TPM: 1000}}}
		post(t, s, "d", body(text, 589))
		s.SetLimit("d", 600, 0)
		s.SetLimit("unknown", 1, 1)
		w := post(t, s, "d", body(text, 89))
		if got := w.Header().Get("x-ratelimit-limit-tokens"); w.Code != 429 || got != "600" {
			t.Errorf("after the cut: status %d with limit %s, want 429 with 600", w.Code, got)
		}
		s.SetLimit("d", 0, 0)
		if w := post(t, s, "d", body(text, 5000)); w.Code != 200 || w.Header().Get("x-ratelimit-limit-tokens") != "" {
			t.Errorf("without a limit: status %d, want 200 and no headers", w.Code)
		}
	})
}

// TestServerPeakOfAFleet drives 200 clients into one limit and holds the peak
// against it.
func TestServerPeakOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, each, tpm = 200, 60, 150_000
		s := &modeltest.Server{
			Deployments: map[string]modeltest.Deployment{"d": {TPM: tpm}},
			Latency:     func(_, output int) time.Duration { return time.Duration(output) * 20 * time.Millisecond },
		}
		done := make(chan int)
		for c := range clients {
			go func() {
				refused := 0
				for i := range each {
					pass(time.Duration(c*37+i*11) * time.Millisecond)
					if post(t, s, "d", body(text, 100+c)).Code == 429 {
						refused++
					}
				}
				done <- refused
			}()
		}
		refused := 0
		for range clients {
			refused += <-done
		}
		st := s.Stats()
		if got := s.PeakMinute("d"); got > tpm || got < tpm-1000 {
			t.Errorf("PeakMinute() = %d, want just below %d", got, tpm)
		}
		if st.Calls+st.Tokens429 != clients*each || st.Tokens429 != refused || refused == 0 {
			t.Errorf("Stats() = %+v, want calls and %d refusals to sum to %d", st, refused, clients*each)
		}
		if s.PeakOffered("d") <= tpm {
			t.Errorf("PeakOffered() = %d, want more than %d", s.PeakOffered("d"), tpm)
		}
	})
}
