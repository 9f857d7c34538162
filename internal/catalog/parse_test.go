package catalog_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/catalog"
)

var update = flag.Bool("update", false, "rewrite testdata/problems.txt")

var folder = fstest.MapFS{
	"p.md":        {Data: []byte("Be brief.")},
	"empty.md":    {Data: []byte(" \n")},
	"bom.md":      {Data: []byte("\xef\xbb\xbfBe brief.")},
	"latin.md":    {Data: []byte("Fass dich k\xfcrz.")},
	"big.md":      {Data: make([]byte, 1<<20+1)},
	"ok.json":     {Data: []byte(`{"type":"object"}`)},
	"array.json":  {Data: []byte(`{"type":"array"}`)},
	"broken.json": {Data: []byte(`{"type":`)},
	"wrong.json":  {Data: []byte(`{"type":"object","minProperties":-1}`)},
	"ref.json":    {Data: []byte(`{"type":"object","$ref":"https://elsewhere.example/s.json"}`)},
}

// good is a catalog in which each line can be replaced.
const good = `version: "1"
tenants:
  acme: {containers: ["https://acct.blob.core.windows.net/in"]}
deployments:
  gpt: {endpoint: "https://res.openai.azure.com", deployment: gpt-x, tpm: 10000}
aliases:
  sum: {kind: chat, deployments: [gpt], prompt_file: p.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}
`

// with replaces a line of good, counted from one.
func with(line int, text string) string {
	lines := strings.SplitAfter(good, "\n")
	lines[line-1] = text + "\n"
	return strings.Join(lines, "")
}

func tenant(text string) string     { return with(3, "  acme: "+text) }
func deployment(text string) string { return with(5, "  gpt: "+text) }
func alias(text string) string      { return with(7, "  sum: "+text) }
func policy(text string) string     { return good + "policy: " + text + "\n" }

func aliasWith(parameters string) string {
	return alias(`{kind: chat, deployments: [gpt], prompt_file: p.md, prompt_version: "1", parameters: ` + parameters + `}`)
}

func deploymentWith(more string) string {
	return deployment(`{endpoint: "https://res.openai.azure.com", deployment: gpt-x, tpm: 10000, ` + more + `}`)
}

func schema(file string) string {
	return alias(`{kind: chat, deployments: [gpt], prompt_file: p.md, prompt_version: "1", parameters: {max_completion_tokens: 100}, output_schema_file: ` + file + `}`)
}

func container(u string) string { return tenant(fmt.Sprintf("{containers: [%q]}", u)) }

func TestParseAccepts(t *testing.T) {
	for name, text := range map[string]string{
		"the smallest":            good,
		"with a document start":   "---\n" + good,
		"a tenant of digits":      with(3, `  123: {containers: ["https://acct.blob.core.windows.net/in"]}`),
		"an emulator":             strings.Replace(policy("{allow_loopback_http: true}"), "https://acct.blob.core.windows.net/in", "http://127.0.0.1:10000/devstoreaccount1/in", 1),
		"a gateway with a path":   deployment(`{endpoint: "https://gateway.example/team-a/", deployment: gpt-x, tpm: 10000}`),
		"a key in a file":         deploymentWith("api_key_file: /var/run/secrets/key"),
		"a schema":                alias(`{kind: chat, deployments: [gpt], prompt_file: p.md, prompt_version: "1", parameters: {max_completion_tokens: 100}, output_schema_file: ok.json}`),
		"a prompt version of hex": alias(`{kind: chat, deployments: [gpt], prompt_file: p.md, prompt_version: "d41d8cd98f00b204e9800998ecf8427e", parameters: {max_completion_tokens: 100}}`),
		"all of the limit":        aliasWith("{max_completion_tokens: 9997}"),
	} {
		if _, err := catalog.Parse([]byte(text), folder, "c.yaml"); err != nil {
			t.Errorf("%s: Parse = %v, want nil", name, err)
		}
	}
}

func TestParseReportsEveryProblemWithItsPlace(t *testing.T) {
	var got strings.Builder
	for _, tc := range []struct{ name, text string }{
		{"empty", ""},
		{"comments only", "# nothing\n"},
		{"a list", "- a\n"},
		{"a text", "hello\n"},
		{"broken YAML", "version: \"1\"\ntenants: [1\n"},
		{"a tab", "version: \"1\"\n\ttenants: 1\n"},
		{"two documents", good + "---\nversion: \"1\"\n"},
		{"a directive", "%YAML 1.2\n---\n" + good},
		{"only a version", "version: \"1\"\n"},
		{"version is a number", with(1, "version: 1")},
		{"version of the future", with(1, "version: \"2\"")},
		{"unknown keys everywhere", with(3, `  acme: {containers: ["https://acct.blob.core.windows.net/in"], budget: 5}`) + "policy: {retries: 3}\nextra: 1\n"},
		{"a key twice", good + "tenants: {b: {containers: [\"https://acct.blob.core.windows.net/in\"]}}\n"},
		{"anchors and tags", with(3, `  acme: &a {containers: !!seq ["https://acct.blob.core.windows.net/in"]}`)},
		{"a merge key", with(3, `  <<: {x: 1}`)},
		{"a complex key", with(3, "  ? [a]\n  : 1")},
		{"a key that is no name", with(3, `  "a\nb": {containers: ["https://acct.blob.core.windows.net/in"], "": 1}`)},
		{"brackets without end", with(3, strings.Repeat("[", 1<<17))},
		{"nothing named", "version: \"1\"\ntenants: {}\ndeployments:\naliases: []\n"},

		{"tenant name", with(3, `  Acme_1: {containers: ["https://acct.blob.core.windows.net/in"]}`)},
		{"tenant without anything", with(3, `  acme:`)},
		{"tenant without containers", tenant("{team: a}")},
		{"tenant with no containers", tenant("{containers: []}")},
		{"tenant values", tenant(`{team: " x", weight: 0, containers: "https://a"}`)},
		{"weight is a text", tenant(`{weight: "2", containers: ["https://acct.blob.core.windows.net/in"]}`)},
		{"weight is not a number", tenant(`{weight: .nan, containers: ["https://acct.blob.core.windows.net/in"]}`)},
		{"container twice", tenant(`{containers: ["https://acct.blob.core.windows.net/in", "https://acct.blob.core.windows.net/in/"]}`)},
		{"container with a signature", container("https://acct.blob.core.windows.net/in?sv=2024&sig=SECRET")},
		{"container with a query", container("https://acct.blob.core.windows.net/in?x=SECRET")},
		{"container with a fragment", container("https://acct.blob.core.windows.net/in#SECRET")},
		{"container with a user", container("https://user:SECRET@acct.blob.core.windows.net/in")},
		{"container over http", container("http://acct.blob.core.windows.net/in")},
		{"container on loopback", container("http://127.0.0.1:10000/devstoreaccount1/in")},
		{"container with a folder", container("https://acct.blob.core.windows.net/in/acme")},
		{"container without a container", container("https://acct.blob.core.windows.net/")},
		{"container name", container("https://acct.blob.core.windows.net/In--x")},
		{"container with escapes", container("https://acct.blob.core.windows.net/%69n")},
		{"container with dots", container("https://acct.blob.core.windows.net/a/../in")},
		{"container is no URL", container("in")},

		{"deployment values", deployment(`{endpoint: "http://res.openai.azure.com", deployment: "a/b", api_version: v2, tpm: 0, rpm: -1, reserved_tpm: 1.5, context_window: x}`)},
		{"deployment without its keys", deployment("{rpm: 1}")},
		{"endpoint with the path of a call", deployment(`{endpoint: "https://res.openai.azure.com/openai/v1", deployment: gpt-x, tpm: 10000}`)},
		{"all reserved", deploymentWith("reserved_tpm: 10000")},
		{"octal", deployment(`{endpoint: "https://res.openai.azure.com", deployment: gpt-x, tpm: 010000}`)},
		{"beyond 64 bits", deployment(`{endpoint: "https://res.openai.azure.com", deployment: gpt-x, tpm: 99999999999999999999}`)},
		{"tpm in quotes", deployment(`{endpoint: "https://res.openai.azure.com", deployment: gpt-x, tpm: "10000"}`)},
		{"a key in the catalog", deploymentWith("api_key: SECRET")},
		{"a key in place of a name", deploymentWith("api_key_env: 0123456789abcdef0123456789abcdef")},
		{"a long key in place of a path", deploymentWith("api_key_file: " + strings.Repeat("SECRETaB1c", 8) + "abcd")},
		{"both places for a key", deploymentWith("api_key_env: KEY, api_key_file: /run/key")},
		{"places that are none", deploymentWith(`api_key_env: "MY KEY"`)},
		{"a relative key file", deploymentWith("api_key_file: key.txt")},
		{"one deployment twice", with(5, "  gpt: {endpoint: \"https://res.openai.azure.com\", deployment: gpt-x, tpm: 10000}\n  again: {endpoint: \"https://RES.openai.azure.com/\", deployment: GPT-x, tpm: 10000}")},
		{"price", deploymentWith(`price: {rule: 1, currency: usd, input: -1, cached: x}`)},

		{"alias name", with(7, `  sum.: {kind: chat, deployments: [gpt], prompt_file: p.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}`)},
		{"alias without anything", alias("{}")},
		{"alias values", alias(`{kind: completion, deployments: [gpt, none, gpt, ~], prompt_file: p.md, prompt_version: 3, parameters: {max_completion_tokens: 100}}`)},
		{"parameters", aliasWith(`{max_completion_tokens: 0, temperature: 2.1, top_p: -1, seed: 1.5, stop: [a, "", c, d, e]}`)},
		{"parameters of another API", aliasWith(`{max_tokens: 5, stream: true}`)},
		{"prompt is missing", alias(`{kind: chat, deployments: [gpt], prompt_file: none.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}`)},
		{"prompt elsewhere", alias(`{kind: chat, deployments: [gpt], prompt_file: ../p.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}`)},
		{"prompt is empty", alias(`{kind: chat, deployments: [gpt], prompt_file: empty.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}`)},
		{"prompt with a mark", alias(`{kind: chat, deployments: [gpt], prompt_file: bom.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}`)},
		{"prompt is not UTF-8", alias(`{kind: chat, deployments: [gpt], prompt_file: latin.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}`)},
		{"prompt is huge", alias(`{kind: chat, deployments: [gpt], prompt_file: big.md, prompt_version: "1", parameters: {max_completion_tokens: 100}}`)},
		{"schema is not JSON", schema("broken.json")},
		{"schema of an array", schema("array.json")},
		{"schema is wrong", schema("wrong.json")},
		{"schema refers elsewhere", schema("ref.json")},
		{"more than the limit", aliasWith("{max_completion_tokens: 9998}")},
		{"more than what is not reserved", deploymentWith("reserved_tpm: 9950")},
		{"more than the context", deploymentWith("context_window: 100")},
		{"policy values", policy("{max_document_bytes: 0, allow_loopback_http: \"true\"}")},
		{"policy is nothing", policy("")},
	} {
		_, err := catalog.Parse([]byte(tc.text), folder, "c.yaml")
		if err == nil {
			t.Errorf("%s: Parse = nil, want an error", tc.name)
			continue
		}
		fmt.Fprintf(&got, "# %s\n%s\n", tc.name, err)
		if p := new(catalog.Problem); !errors.As(err, &p) || p.File != "c.yaml" {
			t.Errorf("%s: errors.As(err, *Problem) = %+v, want one in c.yaml", tc.name, p)
		}
	}
	if strings.Contains(got.String(), "SECRET") || strings.Contains(got.String(), "0123456789abcdef") {
		t.Error("a problem repeats a secret")
	}
	golden := filepath.Join("testdata", "problems.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("a: &a [*a]\n<<: *a\n"))
	f.Add([]byte("? {a: [b, {c: !!str}]}\n: |\n  x\n"))
	f.Add([]byte(policy("{allow_loopback_http: true}")))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := catalog.Parse(data, folder, "c.yaml")
		if (c == nil) == (err == nil) {
			t.Fatalf("Parse = %v, %v, want one of them", c, err)
		}
		if err == nil {
			return
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !strings.HasPrefix(line, "c.yaml:") {
				t.Errorf("line %q does not begin with the file", line)
			}
		}
	})
}
