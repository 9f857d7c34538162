package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestMain gives every run of the tests one folder for what is temporary, and looks whether anything is left in it.
func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "millrace-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("TMPDIR", dir)
	code := m.Run()
	if left, _ := filepath.Glob(filepath.Join(dir, "millrace-dev-*")); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "runs have left behind: %v\n", left)
		return 1
	}
	return code
}
