package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this binary the programs of the scripts too.
func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"millrace": main, "worker": runWorker})
}

type tests struct{ m *testing.M }

// Run gives every run of the tests one folder for what is temporary, and looks whether anything is left in it.
func (t tests) Run() int {
	dir, err := os.MkdirTemp("", "millrace-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("TMPDIR", dir)
	code := t.m.Run()
	if left, _ := filepath.Glob(filepath.Join(dir, "millrace-dev-*")); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "runs have left behind: %v\n", left)
		return 1
	}
	return code
}
