package catalog_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/internal/catalog"
)

func TestLoadSample(t *testing.T) {
	c, err := catalog.Load("testdata/catalog.yaml")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("testdata/schemas/invoice.json")
	if err != nil {
		t.Fatal(err)
	}
	zero, topP, seed := 0.0, 0.9, int64(7)
	main := &catalog.Deployment{
		Name: "gpt-main", Endpoint: "https://res.openai.azure.com", Deployment: "gpt-4.1-mini", APIVersion: "v1",
		TPM: 1_000_000, RPM: 1000, ReservedTPM: 50_000, ContextWindow: 128_000,
		Price: &catalog.Price{Rule: "2026-11", Currency: "USD", Input: 0.4, Cached: 0.1, Output: 1.6},
	}
	spare := &catalog.Deployment{
		Name: "gpt-spare", Endpoint: "https://spare.openai.azure.com", Deployment: "gpt-4.1-mini", APIVersion: "2024-10-21",
		TPM: 200_000, APIKeyEnv: "SPARE_KEY",
	}
	want := &catalog.Catalog{
		Tenants: map[string]*catalog.Tenant{
			"acme":   {Name: "acme", Team: "knowledge", Weight: 2, Containers: []string{"https://acct.blob.core.windows.net/in", "https://acct.blob.core.windows.net/archive"}},
			"globex": {Name: "globex", Weight: 1, Containers: []string{"https://acct.blob.core.windows.net/in"}},
		},
		Deployments: map[string]*catalog.Deployment{"gpt-main": main, "gpt-spare": spare},
		Aliases: map[string]*catalog.Alias{
			"summarize": {
				Name: "summarize", Kind: "chat", Deployments: []*catalog.Deployment{main, spare},
				Prompt: "Summarise the document in five sentences.\n", PromptVersion: "3",
				PromptHash: "1f1a44fff4ea3cf76d2db38ed59583627ace8ad227debc61cd748f5daa96fb51",
				Parameters: catalog.Parameters{MaxCompletionTokens: 512, Temperature: &zero, TopP: &topP, Seed: &seed, Stop: []string{"END"}},
			},
			"invoice.fields": {
				Name: "invoice.fields", Kind: "chat", Deployments: []*catalog.Deployment{main},
				Prompt: "Read the invoice and return its fields.\n", PromptVersion: "2026-11-03",
				PromptHash: "a45ee39181deb5fa1126d21bcf6f6746f4f03a3917a5a6058ffe651211adf0a2",
				Parameters: catalog.Parameters{MaxCompletionTokens: 800},
				Schema:     &catalog.Schema{Name: "invoice_fields", Raw: raw},
			},
		},
		Policy: catalog.Policy{MaxDocumentBytes: 2 << 20},
	}
	if len(c.Hash) != 64 {
		t.Errorf("Hash = %q, want a SHA-256 in hexadecimal", c.Hash)
	}
	ignore := cmp.Options{cmpopts.IgnoreUnexported(catalog.Schema{}), cmpopts.IgnoreFields(catalog.Catalog{}, "Hash")}
	if diff := cmp.Diff(want, c, ignore); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

func TestCatalogViews(t *testing.T) {
	c, err := catalog.Load("testdata/catalog.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"acme": 2, "globex": 1}, c.Weights()); diff != "" {
		t.Errorf("Weights (-want +got):\n%s", diff)
	}
	c.Containers()["acme"][0] = "changed"
	if got, want := c.Containers()["acme"][0], "https://acct.blob.core.windows.net/in"; got != want {
		t.Errorf("Containers()[acme][0] after a caller changed its copy = %q, want %q", got, want)
	}
	if got, want := c.Deployments["gpt-main"].Budget(), 950_000; got != want {
		t.Errorf("Budget() = %d, want %d", got, want)
	}
	// 42 characters of prompt.
	for characters, want := range map[int]int{0: 11 + 512, 2: 11 + 512, 3: 12 + 512, 4000: 1011 + 512, -5: 11 + 512} {
		if got := c.Aliases["summarize"].Estimate(characters); got != want {
			t.Errorf("Estimate(%d) = %d, want %d", characters, got, want)
		}
	}
}

func TestDeploymentCost(t *testing.T) {
	d := &catalog.Deployment{Price: &catalog.Price{Rule: "2026-11", Currency: "USD", Input: 0.40, Cached: 0.10, Output: 1.60}}
	for _, tc := range []struct {
		usage catalog.Usage
		want  float64
	}{
		{catalog.Usage{}, 0},
		{catalog.Usage{Input: 1_000_000}, 0.40},
		{catalog.Usage{Input: 1_000_000, Cached: 1_000_000}, 0.10},
		{catalog.Usage{Input: 1000, Cached: 400, Output: 73}, 0.0003968},
		{catalog.Usage{Input: 10, Cached: 50, Output: -1}, 0.000001},
		{catalog.Usage{Input: 3, Output: 1}, 0.0000028},
	} {
		got, ok := d.Cost(tc.usage)
		if want := (catalog.Cost{Amount: tc.want, Currency: "USD", Rule: "2026-11"}); !ok || got != want {
			t.Errorf("Cost(%+v) = %+v, %v, want %+v", tc.usage, got, ok, want)
		}
	}
	if _, ok := (&catalog.Deployment{}).Cost(catalog.Usage{Input: 1}); ok {
		t.Error("Cost without a price = true, want false")
	}
}

func TestDeploymentKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	byFile, byEnv := &catalog.Deployment{Name: "d", APIKeyFile: file}, &catalog.Deployment{Name: "d", APIKeyEnv: "MILLRACE_TEST_KEY"}
	for _, tc := range []struct {
		content, want string
		bad           bool
	}{
		{"first\n", "first", false},
		{"  rotated \r\n", "rotated", false},
		{"", "", true},
		{" \n", "", true},
		{"two\nlines", "", true},
	} {
		write(tc.content)
		t.Setenv("MILLRACE_TEST_KEY", tc.content)
		for name, d := range map[string]*catalog.Deployment{"file": byFile, "env": byEnv} {
			got, err := d.Key()
			if got != tc.want || (err != nil) != tc.bad {
				t.Errorf("Key() from %s %q = %q, %v, want %q", name, tc.content, got, err, tc.want)
			}
		}
	}
	for name, d := range map[string]*catalog.Deployment{
		"missing file": {Name: "d", APIKeyFile: filepath.Join(t.TempDir(), "none")},
		"unset env":    {Name: "d", APIKeyEnv: "MILLRACE_TEST_UNSET"},
		"Entra ID":     {Name: "d"},
	} {
		if _, err := d.Key(); err == nil {
			t.Errorf("Key() with %s = nil, want an error", name)
		}
	}
	if byFile.HasKey() != true || (&catalog.Deployment{}).HasKey() != false {
		t.Error("HasKey() is wrong")
	}
}

func TestSchemaCheck(t *testing.T) {
	c, err := catalog.Load("testdata/catalog.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := c.Aliases["invoice.fields"].Schema
	for _, tc := range []struct{ answer, want string }{
		{`{"total": 12.50, "currency": "EUR"}`, ""},
		{`{"total": "SECRET", "currency": "EUR"}`, "answer does not match the schema at /properties/total/type"},
		{`{"total": 1, "currency": "SECRET"}`, "answer does not match the schema at /properties/currency/pattern"},
		{`{"total": 1}`, "answer does not match the schema at /required"},
		{`{"total": 1, "currency": "EUR", "SECRET": 1}`, "answer does not match the schema at /additionalProperties"},
		{"```json\n{}\n```", "answer is not JSON"},
		{`{"total": 1, "currency": "EUR"} trailing`, "answer is not JSON"},
		{"", "answer is not JSON"},
	} {
		got := ""
		if err := s.Check(tc.answer); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("Check(%q) = %q, want %q", tc.answer, got, tc.want)
		}
	}
}

func TestLoadFollowsALinkOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(revision, name, content string) {
		path := filepath.Join(dir, revision, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	sample, err := os.ReadFile("testdata/catalog.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// As a ConfigMap is mounted; the schema is mounted from somewhere else.
	write("..1", "catalog.yaml", string(sample))
	write("..1", "prompts/summarize.md", "of the same revision")
	write("..1", "prompts/invoice.md", "of the same revision")
	write("elsewhere", "invoice.json", `{"type":"object"}`)
	link("..1", "..data")
	link("..data/catalog.yaml", "catalog.yaml")
	link("elsewhere", "schemas")
	write("prompts", "summarize.md", "of another revision")

	c, err := catalog.Load(filepath.Join(dir, "catalog.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Aliases["summarize"].Prompt, "of the same revision"; got != want {
		t.Errorf("Prompt = %q, want %q", got, want)
	}
	if c.Aliases["invoice.fields"].Schema == nil {
		t.Error("Schema = nil, want the one beside the link")
	}
}

func TestCatalogHashCoversEveryFile(t *testing.T) {
	hash := func(change func(fstest.MapFS), text string) string {
		files := fstest.MapFS{
			"p.md":    {Data: []byte("Be brief.")},
			"ok.json": {Data: []byte(`{"type":"object"}`)},
			"other":   {Data: []byte("not named in the catalog")},
		}
		change(files)
		c, err := catalog.Parse([]byte(text), files, "c.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return c.Hash
	}
	base := hash(func(fstest.MapFS) {}, schema("ok.json"))
	for name, tc := range map[string]struct {
		same bool
		got  string
	}{
		"nothing":       {true, hash(func(fstest.MapFS) {}, schema("ok.json"))},
		"another file":  {true, hash(func(f fstest.MapFS) { f["other"].Data = nil }, schema("ok.json"))},
		"the prompt":    {false, hash(func(f fstest.MapFS) { f["p.md"].Data = []byte("Be long.") }, schema("ok.json"))},
		"the schema":    {false, hash(func(f fstest.MapFS) { f["ok.json"].Data = []byte(`{"type": "object"}`) }, schema("ok.json"))},
		"only comments": {false, hash(func(fstest.MapFS) {}, schema("ok.json")+"# comment\n")},
	} {
		if (tc.got == base) != tc.same {
			t.Errorf("after a change of %s: equal hashes = %v, want %v", name, tc.got == base, tc.same)
		}
	}
}
