package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rooms says which other rooms the non-test code of a room may import, and which outside packages are its alone to
// know. A folder that is not listed here fails the test, so that a new room states its place first.
//
// The sources are read with go/parser on purpose: a test that asks "go list" is answered from the test cache after a
// forbidden import was added.
var rooms = map[string]struct {
	house   []string // rooms of ours
	outside []string // path prefixes of restricted packages, see restricted
}{
	"claimcheck":         {house: []string{"internal/redact"}, outside: []string{azcore, azblob}},
	"quota":              {},
	"worker":             {outside: []string{azservicebus, goamqp}},
	"worker/infer":       {house: []string{"worker", "claimcheck", "quota", "internal/catalog", "internal/model", "internal/redact"}},
	"internal/catalog":   {},
	"internal/model":     {outside: []string{azcore, azidentity, openai}},
	"internal/redact":    {outside: []string{azcore}},
	"internal/telemetry": {},
	"cmd/worker":         {house: []string{"cmd/worker/app"}},
	"cmd/worker/app": {house: []string{"worker", "worker/infer", "claimcheck", "quota", "internal/catalog", "internal/model", "internal/redact", "internal/telemetry"},
		outside: []string{azcore, azblob, azidentity, azservicebus}},
	"cmd/millrace": {house: []string{"cmd/worker/app", "worker", "claimcheck", "quota", "internal/catalog", "internal/redact", "test/sbtest", "test/blobtest", "test/modeltest"},
		outside: []string{azcore, azblob, azservicebus}},
	"test/pipe":                   {},
	"test/golden":                 {outside: []string{"testing"}},
	"test/sbtest":                 {house: []string{"test/sbtest/internal/wire", "test/sbtest/internal/engine"}},
	"test/sbtest/internal/engine": {house: []string{"test/sbtest/internal/wire"}},
	"test/sbtest/internal/wire":   {},
	"test/blobtest":               {},
	"test/bench/worker": {house: []string{"cmd/worker/app", "claimcheck", "test/sbtest", "test/blobtest", "test/modeltest"},
		outside: []string{azcore, azblob, azservicebus, openai}},
	"test/modeltest": {},
}

const (
	azcore       = "github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azidentity   = "github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	azblob       = "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	azservicebus = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	openai       = "github.com/openai/openai-go"
	goamqp       = "github.com/Azure/go-amqp"
)

// restricted packages may be imported only where rooms says so.
var restricted = []string{azcore, azidentity, azblob, azservicebus, openai, goamqp, "testing"}

func TestImportsRunOneWay(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		room := path.Dir(filepath.ToSlash(strings.TrimPrefix(file, ".."+string(filepath.Separator))))
		rule, known := rooms[room]
		if !known {
			t.Errorf("%s: room %q is not in the list of rooms; add it with what it may import", file, room)
			return nil
		}
		seen[room] = true
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if of, ours := strings.CutPrefix(imported, "millrace/"); ours {
				if !slices.Contains(rule.house, of) {
					t.Errorf("%s imports %q: room %q may import %v", file, of, room, rule.house)
				}
				continue
			}
			for _, prefix := range restricted {
				if under(imported, prefix) && !slices.ContainsFunc(rule.outside, func(allowed string) bool { return allowed == prefix }) {
					t.Errorf("%s imports %q, which room %q must not know", file, imported, room)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for room := range rooms {
		if !seen[room] {
			t.Errorf("room %q is listed but has no Go file; remove it from the list", room)
		}
	}
}

func under(imported, prefix string) bool {
	return imported == prefix || strings.HasPrefix(imported, prefix+"/")
}

// TestRoomsHaveREADMEs: each room of the top level, and each emulator, documents itself.
func TestRoomsHaveREADMEs(t *testing.T) {
	for _, room := range []string{"cmd", "worker", "claimcheck", "quota", "internal", "test", "test/sbtest", "test/blobtest", "test/modeltest"} {
		if _, err := os.Stat(filepath.Join("..", room, "README.md")); err != nil {
			t.Errorf("room %q has no README.md", room)
		}
	}
}
