package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// call runs the program and returns its exit code and what it printed.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func TestRunHelp(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"millrace [command]", "dev ", "version "}},
		{[]string{"--help"}, []string{"millrace [command]", "completion "}},
		{[]string{"help"}, []string{"millrace [command]"}},
		{[]string{"dev", "--help"}, []string{"--docs", "--out", "--tpm", "--workers", "--json", "The exit code is 0", "default 3"}},
		{[]string{"help", "dev"}, []string{"--docs", "Examples:"}},
		{[]string{"completion"}, []string{"bash", "zsh", "fish"}},
		{[]string{"completion", "bash"}, []string{"bash completion V2 for millrace"}},
		{[]string{"version"}, []string{"millrace "}},
		{[]string{"submit", "--help"}, []string{"--jsonl", "--fail-on", "SERVICEBUS_CONNECTION_STRING", "The exit code is 0"}},
		{[]string{"results"}, []string{"where ", "get ", "list ", "wait ", "retry "}},
		{[]string{"results", "retry", "--help"}, []string{"--dry-run", "pins the blob as it is now"}},
		{[]string{"catalog"}, []string{"check ", "print "}},
	} {
		code, stdout, stderr := call(t, tc.args...)
		if code != exitOK || stderr != "" {
			t.Errorf("run(%q) = %d with %q on standard error, want 0 and nothing", tc.args, code, stderr)
		}
		for _, want := range tc.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("run(%q) does not say %q", tc.args, want)
			}
		}
	}
}

func TestRunUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file.txt")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty, folder := t.TempDir(), filepath.Dir(file)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"bogus"}, `unknown command "bogus"; see "millrace --help"`},
		{[]string{"dve"}, `unknown command "dve": did you mean dev?; see "millrace --help"`},
		{[]string{"--bogus"}, `unknown flag: --bogus; see "millrace --help"`},
		{[]string{"help", "bogus"}, `unknown command "bogus"; see "millrace --help"`},
		{[]string{"completion", "bogus"}, `unknown command "bogus"; see "millrace completion --help"`},
		{[]string{"completion", "bash", "more"}, `unexpected argument "more"`},
		{[]string{"dev", "bogus"}, `unexpected argument "bogus": millrace dev takes flags only`},
		{[]string{"dev", "--bogus"}, `unknown flag: --bogus; see "millrace dev --help"`},
		{[]string{"dev", "--tpm", "many"}, `--tpm "many": use a whole number`},
		{[]string{"dev", "--tpm", "999"}, "--tpm 999: use 1000 to 2147483647"},
		{[]string{"dev", "--tpm", "0"}, "--tpm 0: use 1000 to 2147483647"},
		{[]string{"dev", "--tpm", "1000"}, "--tpm 1000: too little for 3 workers, use at least "},
		{[]string{"dev", "--json=maybe"}, `--json "maybe": use true or false`},
		{[]string{"dev", "--workers", "0"}, "--workers 0: use 1 to 100"},
		{[]string{"dev", "--workers", "-1", "--keep"}, "--workers -1: use 1 to 100"},
		{[]string{"results", "lits"}, `unknown command "lits": did you mean list?; see "millrace results --help"`},
		{[]string{"results", "get"}, "name one result, or --tenant and one correlation id"},
		{[]string{"dev", "--tenant", "acme"}, `--tenant "acme": use fernhill or brightwater`},
		{[]string{"dev", "--model", "gpt"}, `--model "gpt": use knowledge-ingest, ticket-summary or rescore`},
		{[]string{"dev", "--model", "rescore"}, "name their folder with --docs"},
		{[]string{"dev", "--docs", ""}, "--docs is empty"},
		{[]string{"dev", "--out="}, "--out is empty"},
		{[]string{"dev", "--docs", file}, "is a file; name its folder"},
		{[]string{"dev", "--docs", filepath.Join(folder, "missing")}, "no such file or directory"},
		{[]string{"dev", "--docs", empty}, "there is no file in this folder"},
		{[]string{"dev", "--docs", folder, "--out", folder}, "is the folder of the documents"},
		{[]string{"dev", "--docs", folder, "--out", file}, "the folder cannot be made"},
	} {
		code, stdout, stderr := call(t, tc.args...)
		if code != exitUsage || stdout != "" {
			t.Errorf("run(%q) = %d with %q on standard output, want 2 and nothing", tc.args, code, stdout)
		}
		if strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tc.want) || !strings.Contains(stderr, `; see "millrace`) {
			t.Errorf("run(%q) says %q, want one line with %q and where to look", tc.args, stderr, tc.want)
		}
	}
}

// closedPipe is standard output after its reader has gone.
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestRunReaderGone(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"dev"}} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, closedPipe{}, &stderr); code != exitFailed || stderr.Len() > 0 {
			t.Errorf("run(%q) without a reader = %d and %q, want 1 and silence", args, code, stderr.String())
		}
	}
}
