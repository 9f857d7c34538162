package main

import (
	"strings"
	"testing"

	"millrace/claimcheck"
)

const (
	testAccount   = "http://127.0.0.1:10000/devstoreaccount1"
	testContainer = "documents"
)

// hostileNames are names of files that a blob, a claim, a shell or a terminal has trouble with.
func hostileNames() []string {
	return []string{
		"with space.txt", "a#b.txt", "100%.txt", "50%25.txt", "x%2e", "a%2Fb.txt", "a+b.txt", "q?x.txt", "dots.", "dots..",
		`back\slash.txt`, "red\x1b[31m.txt", "two\nlines.txt", "u\u0308.txt", "\u00fc.txt", "日本語.txt", "bad\xff.txt", "$HOME;'\".txt",
		"_", "-dash.txt", "trailing ", " leading", "a/b.txt", "a-b.txt", strings.Repeat("d/", 255) + "z.txt",
		strings.Repeat("L", 250) + ".txt", strings.Repeat(strings.Repeat("L", 200)+"/", 6) + "g.txt",
		strings.Repeat(strings.Repeat("文", 80)+"/", 3) + "j.txt", "no-extension", "a.very-long-extension-with-marks!",
	}
}

func TestDocumentHasAClaim(t *testing.T) {
	blobs, correlations := make(map[string]string), make(map[string]string)
	for _, name := range append(hostileNames(), "plain.txt", "folder/plain.txt") {
		d := document{name: name, tenant: tenantRetail, model: aliasIngest}
		ref, _ := d.reference(testAccount, testContainer)
		claim := claimcheck.Claim{Tenant: d.tenant, Model: d.model, Blob: ref.String(), CorrelationID: correlationID(name)}
		if _, err := claim.Encode(); err != nil {
			t.Errorf("claim for %q: %v", name, err)
		}
		if other, ok := blobs[ref.Blob]; ok {
			t.Errorf("%q and %q are one blob, %s", name, other, ref.Blob)
		}
		if other, ok := correlations[claim.CorrelationID]; ok {
			t.Errorf("%q and %q have one correlation id, %s", name, other, claim.CorrelationID)
		}
		blobs[ref.Blob], correlations[claim.CorrelationID] = name, name
	}
}

func TestDocumentReferenceKeepsNames(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		renamed    bool
	}{
		{"plain.txt", "fernhill/rescore/plain.txt", false},
		{"a b/100%.txt", "fernhill/rescore/a b/100%.txt", false},
		{"u\u0308.txt", "fernhill/rescore/u\u0308.txt", false},
		{"dots.", "fernhill/rescore/renamed-" + shortHash("dots.", 16), true},
		{`a\b.TXT`, "fernhill/rescore/renamed-" + shortHash(`a\b.TXT`, 16) + ".TXT", true},
	} {
		ref, renamed := document{name: tc.name, tenant: tenantRetail, model: aliasRescore}.reference(testAccount, testContainer)
		if ref.Blob != tc.want || renamed != tc.renamed {
			t.Errorf("reference(%q) = %q, %t, want %q, %t", tc.name, ref.Blob, renamed, tc.want, tc.renamed)
		}
	}
}

func TestCorrelationID(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"returns-policy.md", "returns-policy.md"},
		{"a/b.txt", "a-b.txt-" + shortHash("a/b.txt", 8)},
		{"日本語", shortHash("日本語", 8)},
		{"dots.", "dots-" + shortHash("dots.", 8)},
	} {
		if got := correlationID(tc.name); got != tc.want {
			t.Errorf("correlationID(%q) = %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestDocumentContentType(t *testing.T) {
	const text = "text/plain; charset=utf-8"
	for _, tc := range []struct {
		name, body, want string
		sniff            bool
	}{
		{"README", "hello", text, true},
		{"main.go", "package main", text, true},
		{"page.HTML", "<p>", "", true},
		{"scan.pdf", "%PDF-1.7 text", "", true},
		{"data", "a\x00b", "", true},
		{"data", "caf\xe9", "", true},
		{"README", "hello", "", false},
	} {
		if got := (document{name: tc.name, sniff: tc.sniff}).contentType([]byte(tc.body)); got != tc.want {
			t.Errorf("contentType(%q) of %q = %q, want %q", tc.body, tc.name, got, tc.want)
		}
	}
}

func TestShown(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"plain name.txt", "plain name.txt"},
		{"日本語.txt", "日本語.txt"},
		{"red\x1b[31m", `"red\x1b[31m"`},
		{"bad\xff", `"bad\xff"`},
		{strings.Repeat("a", 60) + strings.Repeat("b", 60), strings.Repeat("a", 47) + "…" + strings.Repeat("b", 48)},
	} {
		if got := shown(tc.name); got != tc.want {
			t.Errorf("shown(%q) = %s, want %s", tc.name, got, tc.want)
		}
	}
}
