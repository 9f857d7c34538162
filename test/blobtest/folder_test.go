package blobtest_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/test/blobtest"
)

// debris lists the files of a folder that no blob and no container needs.
func debris(t testing.TB, dir string) []string {
	t.Helper()
	if dir == "" {
		return nil
	}
	var found []string
	for _, pattern := range []string{".tmp/*", "*/*/*.new"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	return found
}

func TestServerFolderSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	first := &blobtest.Server{Dir: dir}
	client, hs := serve(t, first)
	names := []string{"a", "A", "a/../../b", strings.Repeat("ä", 1024), "x:y*z?", "."}
	for _, name := range names {
		first.Put(account, "docs", name, []byte("body of "+name), &blobtest.PutOptions{
			ContentType: "text/plain", Metadata: map[string]string{"N": "1"}})
	}
	if _, err := client.UploadStream(t.Context(), "docs", "stream", bytes.NewReader(make([]byte, 3<<20)), nil); err != nil {
		t.Fatal(err)
	}
	first.Put(account, "docs", "gone", nil, nil)
	first.Remove(account, "docs", "gone")
	first.Put(account, "docs", "over", []byte("1"), nil)
	last := first.Put(account, "docs", "over", []byte("two"), nil)
	hs.Close()

	// What a killed process may leave behind.
	for _, name := range []string{".tmp/body-1", account + "/docs/0-0x1.content", account + "/docs/0.json.new"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	second := &blobtest.Server{Dir: dir}
	if err := second.Open(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.List(account, "docs", ""), second.List(account, "docs", "")); diff != "" {
		t.Errorf("names after restart (-first +second):\n%s", diff)
	}
	for _, name := range second.List(account, "docs", "") {
		before, _ := first.Blob(account, "docs", name)
		after, _ := second.Blob(account, "docs", name)
		if !bytes.Equal(before.Body, after.Body) {
			t.Errorf("body of %q after restart has %d bytes, want the %d of before", name, len(after.Body), len(before.Body))
		}
		before.Body, after.Body = nil, nil
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("blob %q after restart (-first +second):\n%s", name, diff)
		}
	}
	if next := second.Put(account, "docs", "new", nil, nil); next <= last {
		t.Errorf("ETag after restart = %s, want one after %s", next, last)
	}
	if found := debris(t, dir); len(found) > 0 {
		t.Errorf("debris after restart: %v", found)
	}
	contents, _ := filepath.Glob(filepath.Join(dir, account, "docs", "*.content"))
	if got, want := len(contents), len(second.List(account, "docs", "")); got != want {
		t.Errorf("content files = %d, want %d, one for each blob", got, want)
	}
}

// A reader keeps the content it began with when the blob is overwritten.
func TestServerFolderReaderKeepsItsContent(t *testing.T) {
	s := &blobtest.Server{Dir: t.TempDir()}
	body := bytes.Repeat([]byte("old"), 1<<20)
	s.Put(account, "docs", "a", body, nil)
	client, _ := serve(t, s)
	resp, err := client.DownloadStream(t.Context(), "docs", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Put(account, "docs", "a", []byte("new"), nil)
	s.Remove(account, "docs", "a")
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("content = %d bytes, %v, want the %d of before", len(got), err, len(body))
	}
	_ = resp.Body.Close()
}

func TestServerFolderDeletedContainerStaysDeleted(t *testing.T) {
	dir := t.TempDir()
	s := &blobtest.Server{Dir: dir}
	s.Put(account, "docs", "a", []byte("abc"), nil)
	s.Put(account, "other", "b", nil, nil)
	client, _ := serve(t, s)
	if _, err := client.DeleteContainer(t.Context(), "docs", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateContainer(t.Context(), "docs", nil); err != nil {
		t.Fatal(err)
	}
	again := &blobtest.Server{Dir: dir}
	if got := again.List(account, "docs", ""); got != nil {
		t.Errorf("List of the new container = %v, want none", got)
	}
	if got := again.List(account, "other", ""); len(got) != 1 {
		t.Errorf("List of the other container = %v, want b", got)
	}
}

func TestServerFolderBroken(t *testing.T) {
	dir := t.TempDir()
	(&blobtest.Server{Dir: dir}).Put(account, "docs", "a", []byte("abc"), nil)
	contents, err := filepath.Glob(filepath.Join(dir, account, "docs", "*.content"))
	if err != nil || len(contents) != 1 {
		t.Fatalf("content files = %v, %v, want one", contents, err)
	}
	if err := os.Truncate(contents[0], 1); err != nil {
		t.Fatal(err)
	}
	s := &blobtest.Server{Dir: dir}
	if err := s.Open(); err == nil {
		t.Fatal("Open of a folder with a short content = nil, want an error")
	}
	client, _ := serve(t, s)
	_, err = client.CreateContainer(t.Context(), "new", nil)
	wantStatus(t, "CreateContainer on a broken folder", err, 500, "InternalError")
}
