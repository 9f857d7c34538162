package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"millrace/claimcheck"
)

// lastLine is the promise about the last line of the text form, for the counts of a run.
func lastLine(documents, succeeded, refused, failed, dead int) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf(`\ndemo: %d documents: %d succeeded, %d refused, %d failed, %d dead-lettered, 0 lost; `+
		`peak TPM \d+ of \d+; 1 worker cut off, 0 calls after a result\n$`, documents, succeeded, refused, failed, dead))
}

// TestDev runs everything at once, whatever number of processors there is: runs wait for locks most of their time.
func TestDev(t *testing.T) {
	t.Parallel()
	var runs sync.WaitGroup
	for name, test := range map[string]func(*testing.T){
		"samples": testDevSamples, "documents have one result each": testDevDocsHaveOneResultEach,
		"JSON": testDevJSON, "interrupted": testDevInterrupted,
	} {
		runs.Go(func() { t.Run(name, test) })
	}
	runs.Wait()
}

func testDevSamples(t *testing.T) {
	code, stdout, stderr := call(t, "dev")
	if code != exitOK {
		t.Errorf("exit code = %d, want 0", code)
	}
	if want := lastLine(26, 22, 2, 1, 1); !want.MatchString(stdout) {
		t.Errorf("the last line is not %s in:\n%s", want, stdout)
	}
	for _, want := range []string{"26 claim checks sent; 3 workers start", "too_large", "prompt_filter", "inline_payload", "the result of ticket-88412.md"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("standard output does not say %q:\n%s", want, stdout)
		}
	}
	for _, want := range []string{"26 of 26 done, 0 in hand, 0 queued", "a lost worker's locks end in"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("progress does not say %q:\n%s", want, stderr)
		}
	}
}

// sums reads the results below dir by the SHA-256 of their documents.
func sums(t *testing.T, dir string) map[string][]claimcheck.Result {
	t.Helper()
	found := make(map[string][]claimcheck.Result)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		r, err := claimcheck.DecodeResult(body)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found[r.Input.SHA256] = append(found[r.Input.SHA256], r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func testDevDocsHaveOneResultEach(t *testing.T) {
	docs, out := t.TempDir(), filepath.Join(t.TempDir(), "new", "results")
	random := rand.New(rand.NewPCG(1, 2))
	want := make(map[string]int)
	for i := range 30 {
		var text strings.Builder
		for range 20 + random.IntN(400) {
			fmt.Fprintf(&text, "%x ", random.IntN(1<<20))
		}
		if i%10 == 9 {
			text.Reset()
			text.WriteString("the same text, three times")
		}
		sum := sha256.Sum256([]byte(text.String()))
		want[hex.EncodeToString(sum[:])]++
		if err := os.WriteFile(filepath.Join(docs, fmt.Sprintf("note %d.txt", i)), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, stdout, _ := call(t, "dev", "--docs", docs, "--out", out, "--workers", "2", "--tenant", tenantHelp, "--model", aliasRescore)
	if code != exitOK {
		t.Errorf("exit code = %d, want 0", code)
	}
	if want := lastLine(30, 30, 0, 0, 0); !want.MatchString(stdout) {
		t.Errorf("the last line is not %s in:\n%s", want, stdout)
	}
	got := sums(t, out)
	if len(got) != len(want) {
		t.Errorf("results of %d contents, want %d", len(got), len(want))
	}
	for sum, n := range want {
		if len(got[sum]) != n {
			t.Errorf("%d results with sha256 %s, want %d", len(got[sum]), sum, n)
		}
		for _, r := range got[sum] {
			if r.Tenant != tenantHelp || r.Model != aliasRescore || !strings.Contains(r.Text, sum) {
				t.Errorf("result %s is for tenant %s, model %s: %q", r.WorkID, r.Tenant, r.Model, r.Text)
			}
		}
	}
}

func testDevJSON(t *testing.T) {
	docs, out := t.TempDir(), t.TempDir()
	written := 0
	for _, name := range hostileNames() {
		file := filepath.Join(docs, filepath.FromSlash(name))
		if os.MkdirAll(filepath.Dir(file), 0o755) != nil || os.WriteFile(file, []byte(fmt.Sprintf("text of %q", name)), 0o600) != nil {
			continue // not every file system takes every name
		}
		written++
	}
	put(t, docs, "README")
	for name, body := range map[string]string{
		"empty.txt": "", "binary.bin": "\x00\x01\x02", "latin.txt": "caf\xe9", "scan.pdf": "%PDF-1.7", "large.txt": strings.Repeat("word ", 650_000),
	} {
		if err := os.WriteFile(filepath.Join(docs, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link(t, "missing", filepath.Join(docs, "broken"))

	code, stdout, stderr := call(t, "dev", "--json", "--docs", docs, "--out", out)
	if want := "millrace: 1 files could not be taken and were left out\n"; code != exitFailed || stderr != want {
		t.Errorf("exit code = %d with %q on standard error, want 1 and %q", code, stderr, want)
	}
	var s summary
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil || d.More() {
		t.Fatalf("standard output is not one object of the summary: %v\n%s", err, stdout)
	}
	succeeded := written + 1
	if s.Documents != succeeded+5 || s.Succeeded != succeeded || s.Failed != 5 || s.Refused+s.DeadLettered+s.Lost != 0 {
		t.Errorf("summary = %+v, want %d succeeded and 5 failed", s, succeeded)
	}
	if s.CutOff != 1 || s.CallsAfterResult != 0 || s.PeakTPM == 0 || s.PeakTPM > s.LimitTPM || s.Calls < s.Succeeded || s.Seconds <= 0 {
		t.Errorf("summary = %+v, want one worker cut off, no call after a result and no more than the limit", s)
	}
	if len(s.Exceptions) != 5 || len(s.LeftOut) != 1 || len(s.Renamed) == 0 || s.Example == nil {
		t.Errorf("summary has %d exceptions, %d left out, %d renamed, example %t; want 5, 1, some, true",
			len(s.Exceptions), len(s.LeftOut), len(s.Renamed), s.Example != nil)
	}
	results := 0
	for _, r := range sums(t, out) {
		results += len(r)
	}
	if results != s.Results || s.Results != s.Documents {
		t.Errorf("%d results copied, %d counted, want %d", results, s.Results, s.Documents)
	}
}

// stopAfter ends a context when a text was written to it.
type stopAfter struct {
	bytes.Buffer
	text string
	stop context.CancelFunc
}

func (s *stopAfter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.stop()
	}
	return s.Buffer.Write(p)
}

func testDevInterrupted(t *testing.T) {
	for _, tc := range []struct{ after, want string }{
		{"emulators on this machine", "millrace: interrupted before the claims were sent\n"},
		{"claim checks sent", " of 26 documents were done\n"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		stdout := &stopAfter{text: tc.after, stop: stop}
		var stderr bytes.Buffer
		if code := run(ctx, []string{"dev"}, stdout, &stderr); code != exitFailed {
			t.Errorf("exit code after %q = %d, want 1", tc.after, code)
		}
		if !strings.Contains(stderr.String(), "stopping: ") || !strings.HasSuffix(stderr.String(), tc.want) {
			t.Errorf("interrupted after %q it says %q, want %q", tc.after, stderr.String(), tc.want)
		}
		if strings.Contains(stdout.String(), "demo: ") {
			t.Errorf("an interrupted run has a summary:\n%s", stdout.String())
		}
	}
}
