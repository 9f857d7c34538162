package claimcheck_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/claimcheck"
)

func TestResultRoundTripAndSchema(t *testing.T) {
	schema := compileSchema(t, claimcheck.ResultSchema())
	_, base := goodResult(t)
	check := func(name string, r claimcheck.Result) {
		t.Helper()
		body, err := r.Encode()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if err := validBySchema(schema, body); err != nil {
			t.Errorf("%s: the schema refuses %s: %v", name, body, err)
		}
		got, err := claimcheck.DecodeResult(body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("%s: DecodeResult(Encode(r)) differs (-want +got):\n%s", name, diff)
		}
	}
	check("succeeded", base)
	full := base
	full.CorrelationID, full.Run, full.Deployment, full.ModelVersion, full.Fingerprint = "", "2", "gpt-main", "gpt-4.1-mini-2025-04-14", "fp_1"
	full.Prompt = claimcheck.PromptUsed{Version: "3", Hash: strings.Repeat("ab", 32)}
	full.Input.SHA256 = strings.Repeat("cd", 32)
	full.TraceID, full.Attributes = strings.Repeat("1f", 16), map[string]string{"source": "crm"}
	check("all fields", full)
	for _, outcome := range claimcheck.Outcomes() {
		for _, reason := range outcome.Reasons() {
			r := base
			r.Outcome, r.Reason, r.Text, r.Detail = outcome, reason, "", "says why"
			check(string(outcome)+" "+string(reason), r)
		}
	}
}

func TestResultRefusesNonsense(t *testing.T) {
	schema := compileSchema(t, claimcheck.ResultSchema())
	_, base := goodResult(t)
	for _, tc := range []struct {
		name   string
		change func(*claimcheck.Result)
		text   string // a mistake in the JSON itself: old=>new
	}{
		{"version", func(r *claimcheck.Result) { r.Version = "2" }, `"version":"1"=>"version":"2"`},
		{"outcome", func(r *claimcheck.Result) { r.Outcome = "done" }, `"outcome":"succeeded"=>"outcome":"done"`},
		{"reason of a success", func(r *claimcheck.Result) { r.Reason = claimcheck.ReasonDeadline }, `"outcome":"succeeded"=>"outcome":"succeeded","reason":"deadline"`},
		{"reason of another outcome", func(r *claimcheck.Result) {
			r.Outcome, r.Reason = claimcheck.OutcomeRefused, claimcheck.ReasonDeadline
		}, `"outcome":"succeeded"=>"outcome":"refused","reason":"deadline"`},
		{"no reason", func(r *claimcheck.Result) { r.Outcome = claimcheck.OutcomeRefused }, `"outcome":"succeeded"=>"outcome":"refused"`},
		{"success without text", func(r *claimcheck.Result) { r.Text = "" }, `"text":"Thirty days’ notice."=>"text":""`},
		{"work id", func(r *claimcheck.Result) { r.WorkID = "x" }, `"work_id":"=>"work_id":"X`},
		{"tenant", func(r *claimcheck.Result) { r.Tenant = "../x" }, `"tenant":"acme"=>"tenant":"../x"`},
		{"negative", func(r *claimcheck.Result) { r.Usage.Output = -1 }, `"output":5=>"output":-5`},
		{"cost", func(r *claimcheck.Result) { r.Cost.Amount = math.NaN() }, `"amount":=>"amount":-`},
		{"detail", func(r *claimcheck.Result) { r.Detail = strings.Repeat("x", 201) }, `"outcome"=>"detail":"` + strings.Repeat("x", 201) + `","outcome"`},
		{"created", func(r *claimcheck.Result) { r.CreatedAt = time.Time{} }, `"created_at":"2026-12-01T12:00:00Z"=>"created_at":"today"`},
		{"timing", func(r *claimcheck.Result) { r.TimingsMS = map[string]int64{"Fetch": 1} }, `"fetch":3=>"Fetch":3`},
		{"text not UTF-8", func(r *claimcheck.Result) { r.Text = "\xff" }, ""},
		{"duplicate", nil, `"version":"1"=>"version":"1","version":"1"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.change != nil {
				r := base
				tc.change(&r)
				if body, err := r.Encode(); err == nil {
					t.Errorf("Encode gives %s, want an error", body)
				}
			}
			if tc.text == "" {
				return
			}
			body, err := base.Encode()
			if err != nil {
				t.Fatal(err)
			}
			old, changed, _ := strings.Cut(tc.text, "=>")
			bad := strings.Replace(string(body), old, changed, 1)
			if bad == string(body) {
				t.Fatalf("%s does not contain %s", body, old)
			}
			if _, err := claimcheck.DecodeResult([]byte(bad)); err == nil {
				t.Errorf("DecodeResult(%s) succeeded", bad)
			}
			if err := validBySchema(schema, []byte(bad)); err == nil && tc.name != "duplicate" {
				t.Errorf("the schema accepts %s", bad)
			}
		})
	}
}

func TestDecodeResultIgnoresNewFields(t *testing.T) {
	_, base := goodResult(t)
	body, err := base.Encode()
	if err != nil {
		t.Fatal(err)
	}
	body = []byte(strings.Replace(string(body), `{"version"`, `{"novel":{"a":[1]},"version"`, 1))
	got, err := claimcheck.DecodeResult(body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(base, got); diff != "" {
		t.Errorf("DecodeResult differs (-want +got):\n%s", diff)
	}
	if err := validBySchema(compileSchema(t, claimcheck.ResultSchema()), body); err != nil {
		t.Errorf("the schema refuses a new field: %v", err)
	}
}

func TestReasonsAreOneSetEach(t *testing.T) {
	var all []claimcheck.Reason
	for _, outcome := range claimcheck.Outcomes() {
		all = append(all, outcome.Reasons()...)
	}
	all = append(all, claimcheck.SkipReasons()...)
	all = append(all, claimcheck.PoisonReasons()...)
	slices.Sort(all)
	if got := len(slices.Compact(slices.Clone(all))); got != len(all) {
		t.Errorf("%d of %d reasons are distinct: %v", got, len(all), all)
	}
	if got := claimcheck.Outcome("other").Reasons(); got != nil {
		t.Errorf("Reasons of an unknown outcome = %v", got)
	}
}
