package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put writes files with their own name as content.
func put(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("the text of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func link(t *testing.T, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil {
		t.Skipf("this system has no symbolic links: %v", err)
	}
}

func TestReadFolder(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "docs")
	put(t, dir, "b.txt", "a/c.txt", ".hidden.txt", ".git/config", "a/.x", "results/fernhill/old.json", "a/results/kept.txt")
	link(t, "b.txt", filepath.Join(dir, "link.txt"))
	link(t, "missing.txt", filepath.Join(dir, "broken.txt"))
	link(t, "..", filepath.Join(dir, "loop"))
	link(t, "docs", filepath.Join(base, "docs-link"))
	huge, err := os.Create(filepath.Join(dir, "huge.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := huge.Truncate(maxFile + 1); err != nil {
		t.Fatal(err)
	}
	huge.Close()
	except, err := os.Stat(filepath.Join(dir, "results"))
	if err != nil {
		t.Fatal(err)
	}

	for _, start := range []string{"docs", "docs-link"} {
		f, err := readFolder(filepath.Join(base, start), tenantRetail, aliasIngest, except)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range f.documents {
			names = append(names, d.name)
		}
		if diff := cmp.Diff([]string{"a/c.txt", "a/results/kept.txt", "b.txt", "link.txt"}, names); diff != "" {
			t.Errorf("readFolder(%s) documents (-want +got):\n%s", start, diff)
		}
		left := []leftOut{{"broken.txt", "no such file or directory"}, {"huge.txt", "larger than 64 MiB"}}
		if diff := cmp.Diff(left, f.left); diff != "" {
			t.Errorf("readFolder(%s) left out (-want +got):\n%s", start, diff)
		}
	}
}

func TestCopyResultsReplacesTheSameDocumentOnly(t *testing.T) {
	dir := t.TempDir()
	old, fresh := shortHash("old", 64)+".json", shortHash("fresh", 64)+".json"
	put(t, dir, old, fresh, "notes.json", "short.json")
	removed, err := removeOthers(dir, fresh)
	if err != nil || removed != 1 {
		t.Fatalf("removeOthers() = %d, %v, want 1", removed, err)
	}
	for name, want := range map[string]bool{old: false, fresh: true, "notes.json": true, "short.json": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there = %t, want %t", name, err == nil, want)
		}
	}
}
