package claimcheck_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"millrace/claimcheck"
)

func TestPolicyCheck(t *testing.T) {
	policy := claimcheck.Policy{
		Containers: map[string][]string{
			"acme":     {"https://Acct.blob.core.windows.net:443/in/", "not a URL", "http://127.0.0.1:10000/devstoreaccount1/in"},
			"tenant-b": {"https://acct.blob.core.windows.net/results"},
			"empty":    {},
		},
		Results: "https://acct.blob.core.windows.net/results",
	}
	for _, tc := range []struct {
		name, tenant, blob string
		loopback           bool
		want               claimcheck.Reason // empty: allowed
	}{
		{"listed", "acme", "https://acct.blob.core.windows.net/in/acme/a", false, ""},
		{"unknown tenant", "other", "https://acct.blob.core.windows.net/in/other/a", false, claimcheck.ReasonUnknownTenant},
		{"empty tenant", "", "https://acct.blob.core.windows.net/in//a", false, claimcheck.ReasonUnknownTenant},
		{"no containers", "empty", "https://acct.blob.core.windows.net/in/empty/a", false, claimcheck.ReasonForbiddenReference},
		{"other tenant's folder", "acme", "https://acct.blob.core.windows.net/in/tenant-b/a", false, claimcheck.ReasonForbiddenReference},
		{"folder that begins alike", "acme", "https://acct.blob.core.windows.net/in/acme2/a", false, claimcheck.ReasonForbiddenReference},
		{"the folder itself", "acme", "https://acct.blob.core.windows.net/in/acme", false, claimcheck.ReasonForbiddenReference},
		{"folder in capitals", "acme", "https://acct.blob.core.windows.net/in/ACME/a", false, claimcheck.ReasonForbiddenReference},
		{"other container", "acme", "https://acct.blob.core.windows.net/in2/acme/a", false, claimcheck.ReasonForbiddenReference},
		{"other account", "acme", "https://stothertenant9.blob.core.windows.net/in/acme/a", false, claimcheck.ReasonForbiddenReference},
		{"foreign host", "acme", "https://collector.example/in/acme/a", false, claimcheck.ReasonForbiddenReference},
		{"look-alike host", "acme", "https://acct.blob.core.windows.net.evil.example/in/acme/a", false, claimcheck.ReasonForbiddenReference},
		{"other port", "acme", "https://acct.blob.core.windows.net:8443/in/acme/a", false, claimcheck.ReasonForbiddenReference},
		{"dot segments", "acme", "https://acct.blob.core.windows.net/in/acme/../tenant-b/a", false, claimcheck.ReasonInvalidName},
		{"own output, even if listed", "tenant-b", "https://acct.blob.core.windows.net/results/tenant-b/a", false, claimcheck.ReasonForbiddenReference},
		{"loopback", "acme", "http://127.0.0.1:10000/devstoreaccount1/in/acme/a", true, ""},
		{"loopback not allowed", "acme", "http://127.0.0.1:10000/devstoreaccount1/in/acme/a", false, claimcheck.ReasonForbiddenReference},
		{"other loopback account", "acme", "http://127.0.0.1:10000/devstoreaccount2/in/acme/a", true, claimcheck.ReasonForbiddenReference},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim := sound()
			claim.Tenant, claim.Blob = tc.tenant, tc.blob
			policy.AllowLoopbackHTTP = tc.loopback
			ref, err := policy.Check(claim)
			if tc.want == "" {
				if err != nil {
					t.Errorf("Check(%s) = %v, want it allowed", tc.blob, err)
				} else if ref.Blob != "acme/a" {
					t.Errorf("Check(%s) = %+v, want blob acme/a", tc.blob, ref)
				}
				return
			}
			field := "blob"
			if tc.want == claimcheck.ReasonUnknownTenant {
				field = "tenant"
			}
			wantPoison(t, err, tc.want, field)
		})
	}
	var none claimcheck.Policy
	_, err := none.Check(sound())
	wantPoison(t, err, claimcheck.ReasonUnknownTenant, "tenant")
}

func TestPolicyValidate(t *testing.T) {
	good := claimcheck.Policy{
		Containers: map[string][]string{"acme": {"https://acct.blob.core.windows.net/in"}},
		Results:    "https://acct.blob.core.windows.net/results",
	}
	if err := good.Validate(); err != nil {
		t.Errorf("Validate() = %v, want nil", err)
	}
	bad := claimcheck.Policy{
		Containers: map[string][]string{
			"Acme":     {"https://acct.blob.core.windows.net/in"},
			"tenant-b": {"https://acct.blob.core.windows.net/in?sig=U0VDUkVU", "https://ACCT.blob.core.windows.net/results/", "http://127.0.0.1/devstoreaccount1/in"},
		},
		Results: "https://acct.blob.core.windows.net/results",
	}
	err := bad.Validate()
	if err == nil {
		t.Fatal("Validate() = nil, want every mistake")
	}
	for _, want := range []string{`tenant "Acme"`, "container 1: a container URL has no query", "container 2 is the results container", "container 3: use https"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v, want it to say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "U0VDUkVU") {
		t.Errorf("Validate() shows a secret: %v", err)
	}
}

func TestClaimWorkID(t *testing.T) {
	var vectors []struct {
		Tenant, Model, Blob, ETag, Run string
		WorkID                         string `json:"work_id"`
	}
	data, err := os.ReadFile("testdata/identity.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		claim := claimcheck.Claim{Tenant: v.Tenant, Model: v.Model, Blob: v.Blob, ETag: v.ETag, Run: v.Run, CorrelationID: "c1"}
		got, err := claim.WorkID()
		if err != nil || got != v.WorkID {
			t.Errorf("WorkID(%+v) = %s, %v, want %s", claim, got, err, v.WorkID)
		}
		name, err := claim.ResultName()
		if want := v.Tenant + "/c1/" + v.WorkID + ".json"; err != nil || name != want {
			t.Errorf("ResultName() = %s, %v, want %s", name, err, want)
		}
	}
}

func TestClaimWorkIDSeparatesFields(t *testing.T) {
	base := sound()
	seen := map[string]string{}
	for name, change := range map[string]func(*claimcheck.Claim){
		"base": func(*claimcheck.Claim) {}, "tenant": func(c *claimcheck.Claim) { c.Tenant = "acme2" },
		"model": func(c *claimcheck.Claim) { c.Model = "translate" }, "blob": func(c *claimcheck.Claim) { c.Blob += "2" },
		"version": func(c *claimcheck.Claim) { c.Blob += "?versionid=2026-01-10T08:00:00.1234567Z" },
		"etag":    func(c *claimcheck.Claim) { c.ETag = "0x9" }, "no etag": func(c *claimcheck.Claim) { c.ETag = "" },
		"run":         func(c *claimcheck.Claim) { c.Run = "2" },
		"etag as run": func(c *claimcheck.Claim) { c.ETag, c.Run = "", c.ETag },
	} {
		claim := base
		change(&claim)
		id, err := claim.WorkID()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have one identity", name, other)
		}
		seen[id] = name
	}
	for name, change := range map[string]func(*claimcheck.Claim){
		"correlation id": func(c *claimcheck.Claim) { c.CorrelationID = "other" }, "none": func(c *claimcheck.Claim) { c.CorrelationID = "" },
		"attributes": func(c *claimcheck.Claim) { c.Attributes = map[string]string{"a": "b"} },
		"spelling":   func(c *claimcheck.Claim) { c.Blob = "HTTPS://acct.blob.core.windows.net:443/in/acme%2Fa.txt" },
		"quotes":     func(c *claimcheck.Claim) { c.ETag = `"` + c.ETag + `"` }, "version": func(c *claimcheck.Claim) { c.Version = "" },
	} {
		claim := base
		change(&claim)
		id, err := claim.WorkID()
		if err != nil || seen[id] != "base" {
			t.Errorf("%s changed the identity: %s, %v", name, id, err)
		}
	}
}

func TestResultName(t *testing.T) {
	work := strings.Repeat("0a", 32)
	if got, err := claimcheck.ResultName("acme", "", work); err != nil || got != "acme/_/"+work+".json" {
		t.Errorf("ResultName without correlation id = %s, %v", got, err)
	}
	for _, tc := range [][3]string{{"a/b", "c", work}, {"..", "c", work}, {"acme", "..", work}, {"acme", "_", work}, {"acme", "c", "x"}, {"acme", "c", strings.ToUpper(work)}} {
		if got, err := claimcheck.ResultName(tc[0], tc[1], tc[2]); err == nil {
			t.Errorf("ResultName(%q) = %s, want an error", tc, got)
		}
	}
}
