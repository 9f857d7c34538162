package claimcheck_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"millrace/claimcheck"
)

// sound is a valid claim for tests to change.
func sound() claimcheck.Claim {
	return claimcheck.Claim{
		Version: "1", Tenant: "acme", Model: "summarize", Blob: "https://acct.blob.core.windows.net/in/acme/a.txt",
		CorrelationID: "7f3a", ETag: "0x8DC0000000000A1",
	}
}

func TestClaimEncodeRoundTrip(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*claimcheck.Claim)
		want   func(*claimcheck.Claim) // what comes back where it differs
	}{
		{"plain", func(*claimcheck.Claim) {}, nil},
		{"all fields", func(c *claimcheck.Claim) {
			c.Run = "2026-12.retry_1"
			c.Deadline = time.Date(2026, 12, 1, 12, 0, 0, 500, time.UTC)
			c.Attributes = map[string]string{"source": "crm", "title": `Ünïcode "quoted" \ 日本 🎉`}
		}, nil},
		{"no version", func(c *claimcheck.Claim) { c.Version = "" }, func(c *claimcheck.Claim) { c.Version = "1" }},
		{"quoted etag", func(c *claimcheck.Claim) { c.ETag = `"0x8D"` }, func(c *claimcheck.Claim) { c.ETag = "0x8D" }},
		{"weak etag", func(c *claimcheck.Claim) { c.ETag = `W/"0x8D"` }, func(c *claimcheck.Claim) { c.ETag = "0x8D" }},
		{"deadline elsewhere", func(c *claimcheck.Claim) {
			c.Deadline = time.Date(2026, 12, 1, 12, 0, 0, 0, time.FixedZone("", 3600))
		}, func(c *claimcheck.Claim) { c.Deadline = time.Date(2026, 12, 1, 11, 0, 0, 0, time.UTC) }},
		{"empty attributes", func(c *claimcheck.Claim) { c.Attributes = map[string]string{} }, func(c *claimcheck.Claim) { c.Attributes = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim := sound()
			tc.change(&claim)
			body, err := claim.Encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := claimcheck.Decode(body)
			if err != nil {
				t.Fatalf("Decode(%s): %v", body, err)
			}
			if tc.want != nil {
				tc.want(&claim)
			}
			if diff := cmp.Diff(claim, got); diff != "" {
				t.Errorf("Decode(Encode(c)) differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClaimEncodeRefusesWhatDecodeRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*claimcheck.Claim)
		reason claimcheck.Reason
		field  string
	}{
		{"version", func(c *claimcheck.Claim) { c.Version = "2" }, claimcheck.ReasonUnknownVersion, "version"},
		{"no tenant", func(c *claimcheck.Claim) { c.Tenant = "" }, claimcheck.ReasonMissingField, "tenant"},
		{"tenant", func(c *claimcheck.Claim) { c.Tenant = "Acme" }, claimcheck.ReasonInvalidField, "tenant"},
		{"model", func(c *claimcheck.Claim) { c.Model = "gpt 4" }, claimcheck.ReasonInvalidField, "model"},
		{"no correlation id", func(c *claimcheck.Claim) { c.CorrelationID = "" }, claimcheck.ReasonMissingField, "correlation_id"},
		{"correlation id", func(c *claimcheck.Claim) { c.CorrelationID = "_" }, claimcheck.ReasonInvalidField, "correlation_id"},
		{"etag", func(c *claimcheck.Claim) { c.ETag = "a b" }, claimcheck.ReasonInvalidField, "etag"},
		{"half an etag", func(c *claimcheck.Claim) { c.ETag = `W/0x8D"` }, claimcheck.ReasonInvalidField, "etag"},
		{"run", func(c *claimcheck.Claim) { c.Run = "../x" }, claimcheck.ReasonInvalidField, "run"},
		{"deadline", func(c *claimcheck.Claim) { c.Deadline = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC) }, claimcheck.ReasonInvalidField, "deadline"},
		{"attribute value", func(c *claimcheck.Claim) { c.Attributes = map[string]string{"a": "\xff"} }, claimcheck.ReasonInvalidField, "attributes.a"},
		{"blob", func(c *claimcheck.Claim) { c.Blob = "http://example.com/in/acme/a" }, claimcheck.ReasonForbiddenReference, "blob"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim := sound()
			tc.change(&claim)
			_, err := claim.Encode()
			wantPoison(t, err, tc.reason, tc.field)
		})
	}
}

// TestClaimEncodeLargest builds the largest claim that the bounds allow, with what costs most bytes in JSON in every field.
func TestClaimEncodeLargest(t *testing.T) {
	const host = "https://acct.blob.core.windows.net/in/"
	tenant := strings.Repeat("t", claimcheck.MaxTenant)
	claim := claimcheck.Claim{
		Version: "1", Tenant: tenant, Model: strings.Repeat("m", claimcheck.MaxModel),
		CorrelationID: strings.Repeat("c", claimcheck.MaxCorrelationID), ETag: strings.Repeat("&", claimcheck.MaxETag),
		Run: strings.Repeat("r", claimcheck.MaxRun), Deadline: time.Date(2999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		Attributes: map[string]string{},
	}
	claim.Blob = host + tenant + "/"
	for len(claim.Blob)+9 <= claimcheck.MaxBlob {
		claim.Blob += "%E6%97%A5"
	}
	claim.Blob += strings.Repeat("x", claimcheck.MaxBlob-len(claim.Blob))
	for i := range claimcheck.MaxAttributes {
		name := string(rune('a'+i)) + strings.Repeat("n", claimcheck.MaxAttributeName-1)
		claim.Attributes[name] = strings.Repeat("🎉", claimcheck.MaxAttributeValue)
	}
	body, err := claim.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(body) > claimcheck.MaxEncoded {
		t.Errorf("the largest claim has %d bytes, want at most %d", len(body), claimcheck.MaxEncoded)
	}
	t.Logf("largest claim: %d bytes", len(body))
	if _, err := claimcheck.Decode(body); err != nil {
		t.Error(err)
	}
	// One more of anything is refused, so nothing larger exists.
	for name, larger := range map[string]func(c *claimcheck.Claim){
		"tenant": func(c *claimcheck.Claim) { c.Tenant += "t" }, "model": func(c *claimcheck.Claim) { c.Model += "m" },
		"blob": func(c *claimcheck.Claim) { c.Blob += "x" }, "correlation": func(c *claimcheck.Claim) { c.CorrelationID += "c" },
		"etag": func(c *claimcheck.Claim) { c.ETag += "e" }, "run": func(c *claimcheck.Claim) { c.Run += "r" },
		"attribute":      func(c *claimcheck.Claim) { c.Attributes = map[string]string{"a": strings.Repeat("x", 65)} },
		"attribute name": func(c *claimcheck.Claim) { c.Attributes = map[string]string{strings.Repeat("x", 33): ""} },
		"attribute count": func(c *claimcheck.Claim) {
			c.Attributes = map[string]string{"1": "", "2": "", "3": "", "4": "", "5": "", "6": "", "7": ""}
		},
		"control": func(c *claimcheck.Claim) { c.Attributes = map[string]string{"a": "\x01"} },
	} {
		c := claim
		larger(&c)
		if _, err := c.Encode(); err == nil {
			t.Errorf("Encode accepted a larger %s", name)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 8) + "1" + strings.Repeat("}", 8)
	with := func(field, value string) string {
		fields := map[string]string{
			"version": `"1"`, "tenant": `"acme"`, "model": `"summarize"`,
			"blob": `"https://acct.blob.core.windows.net/in/acme/a.txt"`, "correlation_id": `"7f3a"`,
		}
		fields[field] = value
		var parts []string
		for name, value := range fields {
			if value != "" {
				parts = append(parts, `"`+name+`":`+value)
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	for _, tc := range []struct {
		name, body string
		reason     claimcheck.Reason
		field      string
	}{
		{"nothing", "", claimcheck.ReasonEmptyBody, ""},
		{"white space", " \r\n\t", claimcheck.ReasonEmptyBody, ""},
		{"only a BOM", "\uFEFF", claimcheck.ReasonEmptyBody, ""},
		{"null", "null", claimcheck.ReasonEmptyBody, ""},
		{"two BOMs", "\uFEFF\uFEFF{}", claimcheck.ReasonMalformed, ""},
		{"text", "hello", claimcheck.ReasonMalformed, ""},
		{"XML", "<claim/>", claimcheck.ReasonMalformed, ""},
		{"number", "42", claimcheck.ReasonUnsupportedBody, ""},
		{"JSON in a string", `"{\"version\":\"1\"}"`, claimcheck.ReasonUnsupportedBody, ""},
		{"DataContract string", "@\x06string\x083http://schemas.microsoft.com/2003/10/Serialization/\x99\x02{}", claimcheck.ReasonUnsupportedBody, ""},
		{"UTF-16", "\xff\xfe{\x00}\x00", claimcheck.ReasonUnsupportedBody, ""},
		{"array of none", "[]", claimcheck.ReasonUnsupportedBody, ""},
		{"array of one", "[{}]", claimcheck.ReasonUnsupportedBody, ""},
		{"array of two", "[{},{}]", claimcheck.ReasonMultipleEvents, ""},
		{"broken array", "[{},", claimcheck.ReasonMalformed, ""},
		{"Event Grid event", `{"eventType":"Microsoft.Storage.BlobCreated","data":{}}`, claimcheck.ReasonUnsupportedBody, ""},
		{"CloudEvent", `{"specversion":"1.0","type":"Microsoft.Storage.BlobCreated"}`, claimcheck.ReasonUnsupportedBody, ""},
		{"cut", `{"version":"1"`, claimcheck.ReasonMalformed, ""},
		{"cut after the brace", `{`, claimcheck.ReasonMalformed, ""},
		{"trailing comma", `{"version":"1",}`, claimcheck.ReasonMalformed, ""},
		{"trailing data", with("run", `"x"`) + " {}", claimcheck.ReasonMalformed, ""},
		{"trailing garbage", with("run", `"x"`) + " \x00", claimcheck.ReasonMalformed, ""},
		{"comment", `{/* x */"version":"1"}`, claimcheck.ReasonMalformed, ""},
		{"duplicate", `{"tenant":"a","tenant":"b"}`, claimcheck.ReasonMalformed, "tenant"},
		{"duplicate by escape", `{"tenant":"a","tenan\u0074":"b"}`, claimcheck.ReasonMalformed, "tenant"},
		{"duplicate attribute", with("attributes", `{"a":"1","a":"2"}`), claimcheck.ReasonMalformed, "a"},
		{"invalid UTF-8", with("run", "\"\xff\""), claimcheck.ReasonMalformed, ""},
		{"lone surrogate", with("run", `"\ud800"`), claimcheck.ReasonMalformed, ""},
		{"deep", `{"attributes":` + deep + `}`, claimcheck.ReasonMalformed, ""},
		{"prompt", with("prompt", `"Summarise: secret text"`), claimcheck.ReasonInlinePayload, "prompt"},
		{"messages", `{"messages":[{"role":"user"}]}`, claimcheck.ReasonInlinePayload, "messages"},
		{"version 2", with("version", `"2"`), claimcheck.ReasonUnknownVersion, "version"},
		{"version 2 with new fields", `{"version":"2","novel":1}`, claimcheck.ReasonUnknownVersion, "version"},
		{"version as number", with("version", "1"), claimcheck.ReasonInvalidField, "version"},
		{"version null", with("version", "null"), claimcheck.ReasonInvalidField, "version"},
		{"version empty", with("version", `""`), claimcheck.ReasonMissingField, "version"},
		{"version missing", with("version", ""), claimcheck.ReasonMissingField, "version"},
		{"unknown field", with("priority", `"5"`), claimcheck.ReasonInvalidField, "priority"},
		{"wrong case", with("Tenant", `"acme"`), claimcheck.ReasonInvalidField, "Tenant"},
		{"unknown name of any kind", with("a secret\u00e9", `1`), claimcheck.ReasonInvalidField, "(name not shown)"},
		{"tenant missing", with("tenant", ""), claimcheck.ReasonMissingField, "tenant"},
		{"tenant empty", with("tenant", `""`), claimcheck.ReasonMissingField, "tenant"},
		{"tenant with a path", with("tenant", `"tenant-a/../tenant-b"`), claimcheck.ReasonInvalidField, "tenant"},
		{"tenant dots", with("tenant", `".."`), claimcheck.ReasonInvalidField, "tenant"},
		{"tenant with backslashes", with("tenant", `"a\\..\\b"`), claimcheck.ReasonInvalidField, "tenant"},
		{"tenant upper case", with("tenant", `"TENANT-A"`), claimcheck.ReasonInvalidField, "tenant"},
		{"tenant encoded", with("tenant", `"a%2f..%2fb"`), claimcheck.ReasonInvalidField, "tenant"},
		{"tenant long", with("tenant", `"`+strings.Repeat("t", 600)+`"`), claimcheck.ReasonInvalidField, "tenant"},
		{"tenant NUL", with("tenant", `"acme\u0000"`), claimcheck.ReasonInvalidField, "tenant"},
		{"tenant full-width", with("tenant", `"ａｃｍｅ"`), claimcheck.ReasonInvalidField, "tenant"},
		{"model missing", with("model", ""), claimcheck.ReasonMissingField, "model"},
		{"model ends in a dot", with("model", `"gpt."`), claimcheck.ReasonInvalidField, "model"},
		{"model array", with("model", `["a"]`), claimcheck.ReasonInvalidField, "model"},
		{"blob missing", with("blob", ""), claimcheck.ReasonMissingField, "blob"},
		{"blob long", with("blob", `"https://acct.blob.core.windows.net/in/acme/`+strings.Repeat("x", 1600)+`"`), claimcheck.ReasonInvalidField, "blob"},
		{"blob with SAS", with("blob", `"https://acct.blob.core.windows.net/in/acme/a?sv=1&sig=U0VDUkVU"`), claimcheck.ReasonForbiddenReference, "blob"},
		{"correlation id missing", with("correlation_id", ""), claimcheck.ReasonMissingField, "correlation_id"},
		{"correlation id with a slash", with("correlation_id", `"a/b"`), claimcheck.ReasonInvalidField, "correlation_id"},
		{"correlation id dot", with("correlation_id", `"."`), claimcheck.ReasonInvalidField, "correlation_id"},
		{"correlation id underscore", with("correlation_id", `"_"`), claimcheck.ReasonInvalidField, "correlation_id"},
		{"correlation id trailing dot", with("correlation_id", `"a."`), claimcheck.ReasonInvalidField, "correlation_id"},
		{"etag null", with("etag", `null`), claimcheck.ReasonInvalidField, "etag"},
		{"etag wildcards", with("etag", `"* *"`), claimcheck.ReasonInvalidField, "etag"},
		{"etag empty quotes", with("etag", `"\"\""`), claimcheck.ReasonInvalidField, "etag"},
		{"deadline date only", with("deadline", `"2026-12-01"`), claimcheck.ReasonInvalidField, "deadline"},
		{"deadline no zone", with("deadline", `"2026-12-01T12:00:00"`), claimcheck.ReasonInvalidField, "deadline"},
		{"deadline comma", with("deadline", `"2026-12-01T12:00:00,5Z"`), claimcheck.ReasonInvalidField, "deadline"},
		{"deadline short hour", with("deadline", `"2026-12-01T2:00:00Z"`), claimcheck.ReasonInvalidField, "deadline"},
		{"deadline no such day", with("deadline", `"2026-02-30T12:00:00Z"`), claimcheck.ReasonInvalidField, "deadline"},
		{"deadline epoch", with("deadline", `1796126400`), claimcheck.ReasonInvalidField, "deadline"},
		{"deadline zero", with("deadline", `"0001-01-01T00:00:00Z"`), claimcheck.ReasonInvalidField, "deadline"},
		{"attributes list", with("attributes", `["a"]`), claimcheck.ReasonInvalidField, "attributes"},
		{"attribute number", with("attributes", `{"a":1}`), claimcheck.ReasonInvalidField, "attributes.a"},
		{"attribute name", with("attributes", `{"A":"1"}`), claimcheck.ReasonInvalidField, "attributes"},
		{"attribute control", with("attributes", `{"a":"\u0007"}`), claimcheck.ReasonInvalidField, "attributes.a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := claimcheck.Decode([]byte(tc.body))
			wantPoison(t, err, tc.reason, tc.field)
			for _, secret := range []string{"U0VDUkVU", "secret text"} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows a value of the body: %v", err)
				}
			}
		})
	}
}

func TestDecodeAccepts(t *testing.T) {
	for _, tc := range []struct{ name, body string }{
		{"BOM", "\uFEFF" + `{"version":"1","tenant":"acme","model":"summarize","blob":"https://acct.blob.core.windows.net/in/acme/a.txt","correlation_id":"7f3a","etag":"0x8DC0000000000A1"}`},
		{"any order, spaces, empty optional fields", ` { "deadline":"", "run" : "" , "etag":"\"0x8DC0000000000A1\"", "attributes":{},
			"correlation_id":"7f3a","blob":"https:\/\/acct.blob.core.windows.net/in/acme/a.txt","model":"summari\u007ae","tenant":"acme","version":"1"} ` + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := claimcheck.Decode([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(sound(), got); diff != "" {
				t.Errorf("Decode differs (-want +got):\n%s", diff)
			}
		})
	}
}

func wantPoison(t *testing.T, err error, reason claimcheck.Reason, field string) {
	t.Helper()
	var poison *claimcheck.PoisonError
	if !errors.As(err, &poison) {
		t.Fatalf("error = %v, want a *PoisonError", err)
	}
	if poison.Reason != reason || poison.Field != field {
		t.Errorf("error = %v, want reason %s and field %q", poison, reason, field)
	}
	if len(poison.Detail) > claimcheck.MaxDetail || !utf8.ValidString(poison.Error()) || poison.Detail == "" {
		t.Errorf("detail %q is empty, too long or not UTF-8", poison.Detail)
	}
}
