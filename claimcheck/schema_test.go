package claimcheck_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"millrace/claimcheck"
)

func compileSchema(t testing.TB, text string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.DefaultDraft(jsonschema.Draft2020)
	if err := compiler.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validBySchema applies the schema to a body. A body that is not JSON is invalid.
func validBySchema(schema *jsonschema.Schema, body []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(bytes.TrimPrefix(body, []byte("\uFEFF"))))
	if err != nil {
		return err
	}
	return schema.Validate(doc)
}

// checkAgreement holds Decode and the schema against each other. What Decode accepts the schema accepts. What only Decode
// refuses must be something that no schema can say: a form of the bytes, a rule about references, a date's edge.
func checkAgreement(t *testing.T, schema *jsonschema.Schema, body []byte) {
	t.Helper()
	claim, err := claimcheck.Decode(body)
	bySchema := validBySchema(schema, body)
	if err == nil {
		if bySchema != nil {
			t.Errorf("Decode accepts %q, the schema says %v", body, bySchema)
		}
		encoded, err := claim.Encode()
		if err != nil {
			t.Fatalf("Encode of decoded %q: %v", body, err)
		}
		if len(encoded) > claimcheck.MaxEncoded {
			t.Errorf("Encode gives %d bytes", len(encoded))
		}
		again, err := claimcheck.Decode(encoded)
		if err != nil {
			t.Fatalf("Decode(%s): %v", encoded, err)
		}
		if diff := cmp.Diff(claim, again); diff != "" {
			t.Errorf("a second round differs (-want +got):\n%s", diff)
		}
		if err := validBySchema(schema, encoded); err != nil {
			t.Errorf("Encode gives %s, the schema says %v", encoded, err)
		}
		if _, err := claim.ResultName(); err != nil {
			t.Errorf("ResultName of an accepted claim: %v", err)
		}
		return
	}
	var poison *claimcheck.PoisonError
	if !errors.As(err, &poison) {
		t.Fatalf("Decode(%q) = %v, want a *PoisonError", body, err)
	}
	if bySchema != nil {
		return
	}
	beyond := poison.Reason == claimcheck.ReasonMalformed || poison.Reason == claimcheck.ReasonForbiddenReference ||
		poison.Reason == claimcheck.ReasonInvalidName || poison.Field == "deadline"
	if !beyond {
		t.Errorf("Decode(%q) = %v, the schema accepts it", body, err)
	}
}

// agreementSeeds are bodies around every bound of the contract.
func agreementSeeds(t testing.TB) [][]byte {
	t.Helper()
	base, err := sound().Encode()
	if err != nil {
		t.Fatal(err)
	}
	seeds := [][]byte{base, append([]byte("\uFEFF"), base...), []byte("{}"), []byte("[]"), []byte(`"x"`), []byte("null")}
	values := []string{
		`""`, `"a"`, `"A"`, `"a."`, `"."`, `"_"`, `"a_"`, `"-"`, `"a/b"`, `"a b"`, `null`, `1`, `{}`, `[]`, `true`, `"1"`, `"2"`,
		`"é"`, `"\n"`, `"a\n"`, `"\u007f"`, `"\""`, `"\\"`, `"W/\"a\""`, `"\"a\""`, `"\"\""`, `"W/a"`, `"W/\""`, `"\"a"`,
		`"` + strings.Repeat("a", 63) + `"`, `"` + strings.Repeat("a", 64) + `"`, `"` + strings.Repeat("a", 65) + `"`,
		`"` + strings.Repeat("a", 128) + `"`, `"` + strings.Repeat("a", 129) + `"`,
		`"https://acct.blob.core.windows.net/in/acme/a"`, `"HTTPS://ACCT/inn/a"`, `"http://127.0.0.1:10000/acct/inn/a"`, `"https://"`, `"ftp://a/inn/b"`,
		`"2026-12-01T12:00:00Z"`, `"2026-12-01T12:00:00.123456789+05:30"`, `"2026-12-01t12:00:00z"`, `"2026-13-01T12:00:00Z"`,
		`"2026-12-01T12:00:60Z"`, `"2026-12-01T24:00:00Z"`, `"2026-12-01T12:00:00.Z"`, `"2026-12-01T12:00:00+24:00"`,
		`{"a":"b"}`, `{"A":"b"}`, `{"a":1}`, `{"a":"` + strings.Repeat("🎉", 64) + `"}`, `{"a":"` + strings.Repeat("é", 65) + `"}`,
		`{"a":"\u0000"}`, `{"a":"\u0085"}`, `{"a":"\u2028"}`, `{"` + strings.Repeat("a", 32) + `":""}`, `{"` + strings.Repeat("a", 33) + `":""}`,
		`{"1":"","2":"","3":"","4":"","5":"","6":""}`, `{"1":"","2":"","3":"","4":"","5":"","6":"","7":""}`,
	}
	for _, name := range []string{"version", "tenant", "model", "blob", "correlation_id", "etag", "run", "deadline", "attributes", "other"} {
		for _, value := range values {
			seeds = append(seeds, replaceMember(t, base, name, value))
		}
	}
	return seeds
}

// replaceMember sets one top-level member of a JSON object.
func replaceMember(t testing.TB, body []byte, name, value string) []byte {
	t.Helper()
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	if _, err := dec.ReadToken(); err != nil {
		t.Fatal(err)
	}
	parts := []string{`"` + name + `":` + value}
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			t.Fatal(err)
		}
		key := token.String()
		old, err := dec.ReadValue()
		if err != nil {
			t.Fatal(err)
		}
		if key != name {
			parts = append(parts, `"`+key+`":`+string(old))
		}
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}

func TestDecodeAgreesWithSchema(t *testing.T) {
	schema := compileSchema(t, claimcheck.ClaimSchema())
	for _, body := range agreementSeeds(t) {
		checkAgreement(t, schema, body)
	}
}

func FuzzDecode(f *testing.F) {
	schema := compileSchema(f, claimcheck.ClaimSchema())
	for _, body := range agreementSeeds(f) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkAgreement(t, schema, body)
	})
}
