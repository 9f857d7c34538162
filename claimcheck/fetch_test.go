package claimcheck_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"millrace/claimcheck"
	"millrace/test/blobtest"
)

func zipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func inUTF16(text string, bigEndian bool) []byte {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		if bigEndian {
			b = append(b, byte(unit>>8), byte(unit))
		} else {
			b = append(b, byte(unit), byte(unit>>8))
		}
	}
	return b
}

func TestStoreFetchReadsText(t *testing.T) {
	for _, tc := range []struct {
		name, blob string
		body       []byte
		options    blobtest.PutOptions
		kind       claimcheck.Kind
		want       string
	}{
		{"plain", "a.bin", []byte("a\r\nb\n"), blobtest.PutOptions{ContentType: "text/plain"}, claimcheck.KindText, "a\r\nb\n"},
		{"type with parameters", "a.bin", []byte("x"), blobtest.PutOptions{ContentType: "Text/Plain; charset=UTF-8; format=flowed"}, claimcheck.KindText, "x"},
		{"broken parameter", "a.bin", []byte("x"), blobtest.PutOptions{ContentType: "text/csv; charset"}, claimcheck.KindCSV, "x"},
		{"by extension", "A.MD", []byte("# x"), blobtest.PutOptions{}, claimcheck.KindMarkdown, "# x"},
		{"curl's type", "a.log", []byte("x"), blobtest.PutOptions{ContentType: "application/x-www-form-urlencoded"}, claimcheck.KindText, "x"},
		{"HTML", "a", []byte("<p>x</p>"), blobtest.PutOptions{ContentType: "text/html"}, claimcheck.KindHTML, "<p>x</p>"},
		{"JSON", "a", []byte(`{"a":1}`), blobtest.PutOptions{ContentType: "application/json"}, claimcheck.KindJSON, `{"a":1}`},
		{"UTF-8 with mark", "a.txt", []byte("\uFEFFü"), blobtest.PutOptions{}, claimcheck.KindText, "ü"},
		{"mark outweighs charset", "a.txt", []byte("\uFEFFü"), blobtest.PutOptions{ContentType: "text/plain; charset=windows-1252"}, claimcheck.KindText, "ü"},
		{"UTF-16 little-endian with mark", "a.txt", append([]byte("\xff\xfe"), inUTF16("ü🎉", false)...), blobtest.PutOptions{}, claimcheck.KindText, "ü🎉"},
		{"UTF-16 big-endian with mark", "a.txt", append([]byte("\xfe\xff"), inUTF16("ü🎉", true)...), blobtest.PutOptions{}, claimcheck.KindText, "ü🎉"},
		{"UTF-16 declared", "a.txt", inUTF16("ü", false), blobtest.PutOptions{ContentType: "text/plain; charset=UTF-16LE"}, claimcheck.KindText, "ü"},
		{"windows-1252", "a.txt", []byte("Rechnung f\xfcr Gr\xf6\xdfe \x96 5 \x80"), blobtest.PutOptions{ContentType: "text/plain; charset=windows-1252"}, claimcheck.KindText, "Rechnung für Größe – 5 €"},
		{"ISO-8859-1", "a.txt", []byte("f\xfcr"), blobtest.PutOptions{ContentType: `text/plain; charset="iso-8859-1"`}, claimcheck.KindText, "für"},
		{"gzip", "a.txt", zipped(t, "hello"), blobtest.PutOptions{ContentEncoding: "gzip"}, claimcheck.KindText, "hello"},
		{"replacement character of the author's", "a.txt", []byte("a\uFFFDb"), blobtest.PutOptions{}, claimcheck.KindText, "a\uFFFDb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var srv blobtest.Server
				etag := srv.Put(blobtest.DevAccount, "inbox", "acme/"+tc.blob, tc.body, &tc.options)
				store := startStore(t, &srv, nil)
				got, err := store.Fetch(t.Context(), document("acme/"+tc.blob), etag)
				if err != nil {
					t.Fatal(err)
				}
				sum := sha256.Sum256(tc.body)
				want := &claimcheck.Document{
					Text: tc.want, Kind: tc.kind, ContentType: got.ContentType, ETag: strings.Trim(etag, `"`),
					SHA256: hex.EncodeToString(sum[:]), Size: int64(len(tc.body)),
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("Fetch differs (-want +got):\n%s", diff)
				}
				if n := srv.Stats().Total(); n != 1 {
					t.Errorf("%d requests, want 1", n)
				}
			})
		})
	}
}

func TestStoreFetchRefusesDocuments(t *testing.T) {
	const limit = 1000
	for _, tc := range []struct {
		name, blob string
		body       []byte
		options    blobtest.PutOptions
		want       claimcheck.Reason
	}{
		{"no bytes", "a.txt", nil, blobtest.PutOptions{}, claimcheck.ReasonEmptyDocument},
		{"failed copy", "a.txt", nil, blobtest.PutOptions{CopyStatus: "failed"}, claimcheck.ReasonEmptyDocument},
		{"only white space", "a.txt", []byte(" \r\n\t"), blobtest.PutOptions{}, claimcheck.ReasonEmptyDocument},
		{"only a mark", "a.txt", []byte("\uFEFF"), blobtest.PutOptions{}, claimcheck.ReasonEmptyDocument},
		{"gzip of nothing", "a.txt", zipped(t, ""), blobtest.PutOptions{ContentEncoding: "gzip"}, claimcheck.ReasonEmptyDocument},
		{"too large", "a.txt", bytes.Repeat([]byte("x"), limit+1), blobtest.PutOptions{}, claimcheck.ReasonTooLarge},
		{"too large when decompressed", "a.txt", zipped(t, strings.Repeat("x", limit+1)), blobtest.PutOptions{ContentEncoding: "gzip"}, claimcheck.ReasonTooLarge},
		{"too large as UTF-8", "a.txt", bytes.Repeat([]byte("\x80"), limit), blobtest.PutOptions{ContentType: "text/plain; charset=windows-1252"}, claimcheck.ReasonTooLarge},
		{"other type", "a.txt", []byte("x"), blobtest.PutOptions{ContentType: "application/pdf"}, claimcheck.ReasonUnsupportedType},
		{"odd type", "a.txt", []byte("x"), blobtest.PutOptions{ContentType: "image/x?sig=CANARY"}, claimcheck.ReasonUnsupportedType},
		{"no type at all", "a", []byte("x"), blobtest.PutOptions{}, claimcheck.ReasonUnsupportedType},
		{"PDF without a type", "a.pdf", []byte("%PDF-1.7\n%\xe2\xe3"), blobtest.PutOptions{}, claimcheck.ReasonUnsupportedType},
		{"PDF called text", "a.txt", []byte("%PDF-1.7\nx"), blobtest.PutOptions{ContentType: "text/plain"}, claimcheck.ReasonUnsupportedType},
		{"binary called text", "a.txt", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), blobtest.PutOptions{ContentType: "text/plain"}, claimcheck.ReasonUnsupportedType},
		{"NUL", "a.txt", []byte("a\x00b"), blobtest.PutOptions{}, claimcheck.ReasonUnsupportedType},
		{"UTF-16 without a mark", "a.txt", inUTF16("hello", false), blobtest.PutOptions{}, claimcheck.ReasonUnsupportedType},
		{"other content encoding", "a.txt", []byte("x"), blobtest.PutOptions{ContentEncoding: "br"}, claimcheck.ReasonUnsupportedType},
		{"windows-1252 undeclared", "a.txt", []byte("f\xfcr"), blobtest.PutOptions{}, claimcheck.ReasonUnsupportedCharset},
		{"windows-1252 called UTF-8", "a.txt", []byte("f\xfcr"), blobtest.PutOptions{ContentType: "text/plain; charset=utf-8"}, claimcheck.ReasonUnsupportedCharset},
		{"other charset", "a.txt", []byte("x"), blobtest.PutOptions{ContentType: "text/plain; charset=shift_jis"}, claimcheck.ReasonUnsupportedCharset},
		{"UTF-16 of either order", "a.txt", []byte("xx"), blobtest.PutOptions{ContentType: "text/plain; charset=utf-16"}, claimcheck.ReasonUnsupportedCharset},
		{"UTF-16 odd", "a.txt", []byte("\xff\xfea"), blobtest.PutOptions{}, claimcheck.ReasonCorrupt},
		{"UTF-16 half a character", "a.txt", []byte("\xff\xfe\x3c\xd8a\x00"), blobtest.PutOptions{}, claimcheck.ReasonCorrupt},
		{"not gzip", "a.txt", []byte("plain"), blobtest.PutOptions{ContentEncoding: "gzip"}, claimcheck.ReasonCorrupt},
		{"gzip cut", "a.txt", zipped(t, "hello hello hello")[:20], blobtest.PutOptions{ContentEncoding: "gzip"}, claimcheck.ReasonCorrupt},
		{"archived", "a.txt", []byte("x"), blobtest.PutOptions{Tier: "Archive"}, claimcheck.ReasonBlobArchived},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var srv blobtest.Server
				srv.Put(blobtest.DevAccount, "inbox", "acme/"+tc.blob, tc.body, &tc.options)
				store := startStore(t, &srv, &claimcheck.StoreOptions{MaxDocument: limit})
				_, err := store.Fetch(t.Context(), document("acme/"+tc.blob), "")
				wantDocumentError(t, err, claimcheck.OutcomeUnreadable, tc.want)
				if strings.Contains(strings.ToLower(err.Error()), "canary") {
					t.Errorf("the error shows a header of the blob: %v", err)
				}
				if n := srv.Stats().Total(); n != 1 {
					t.Errorf("%d requests, want 1", n)
				}
			})
		})
	}
}

func wantDocumentError(t *testing.T, err error, outcome claimcheck.Outcome, reason claimcheck.Reason) {
	t.Helper()
	var got *claimcheck.DocumentError
	if !errors.As(err, &got) {
		t.Fatalf("error = %v, want a *DocumentError", err)
	}
	if got.Outcome != outcome || got.Reason != reason || got.Detail == "" || len(got.Detail) > claimcheck.MaxDetail {
		t.Errorf("error = %v, want %s: %s", got, outcome, reason)
	}
}

func TestStoreFetchFieldCaseGzip(t *testing.T) {
	text := strings.Repeat("Clause 7: notice of thirty days.\n", 40)
	synctest.Test(t, func(t *testing.T) {
		body := zipped(t, text)
		srv := blobtest.Server{Fault: func(r blobtest.Request) *blobtest.Fault {
			if r.Attempt == 1 {
				return &blobtest.Fault{CutBody: int64(len(body) / 2)}
			}
			return nil
		}}
		srv.Put(blobtest.DevAccount, "inbox", "acme/doc.txt.gz", body, &blobtest.PutOptions{ContentType: "text/plain", ContentEncoding: "gzip"})
		store := startStore(t, &srv, nil)
		got, err := store.Fetch(t.Context(), document("acme/doc.txt.gz"), "")
		if err != nil || got.Text != text || got.Size != int64(len(body)) {
			t.Errorf("Fetch of a gzip blob cut once = %d bytes of text, %v, want %d", len(got.Text), err, len(text))
		}
	})
}

func TestStoreFetchPinsTheETag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var srv blobtest.Server
		old := srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", []byte("old"), nil)
		store := startStore(t, &srv, nil)
		if _, err := store.Fetch(t.Context(), document("acme/a.txt"), strings.Trim(old, `"`)); err != nil {
			t.Fatal(err)
		}
		srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", []byte("new"), nil)
		_, err := store.Fetch(t.Context(), document("acme/a.txt"), old)
		wantDocumentError(t, err, claimcheck.OutcomeSuperseded, claimcheck.ReasonETagChanged)
	})
}

// TestStoreFetchNeverMixesVersions cuts the body of each first read and replaces the blob in between.
func TestStoreFetchNeverMixesVersions(t *testing.T) {
	before, after := bytes.Repeat([]byte("a"), 100_000), bytes.Repeat([]byte("b"), 100_000)
	for _, pinned := range []bool{true, false} {
		t.Run(fmt.Sprintf("pinned=%v", pinned), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var srv blobtest.Server
				srv.Fault = func(r blobtest.Request) *blobtest.Fault {
					if r.Operation == blobtest.OperationGetBlob && r.Attempt == 1 {
						return &blobtest.Fault{CutBody: 50_000}
					}
					return nil
				}
				srv.Observe = func(e blobtest.Event) {
					if e.Faulted {
						srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", after, nil)
					}
				}
				etag := srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", before, nil)
				if !pinned {
					etag = ""
				}
				store := startStore(t, &srv, nil)
				got, err := store.Fetch(t.Context(), document("acme/a.txt"), etag)
				if pinned {
					wantDocumentError(t, err, claimcheck.OutcomeSuperseded, claimcheck.ReasonETagChanged)
					return
				}
				if err != nil || got.Text != string(after) {
					t.Errorf("Fetch = %v, want the new text whole", err)
				}
			})
		})
	}
}

func TestStoreFetchGivesUpOnBrokenBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := blobtest.Server{Fault: func(blobtest.Request) *blobtest.Fault { return &blobtest.Fault{CutBody: 1} }}
		srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", []byte("hello"), nil)
		store := startStore(t, &srv, nil)
		_, err := store.Fetch(t.Context(), document("acme/a.txt"), "")
		var got *claimcheck.DependencyError
		if !errors.As(err, &got) || got.Misconfigured {
			t.Errorf("Fetch = %v, want a passing *DependencyError", err)
		}
		if n := srv.Stats().Total(); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	})
}

func TestStoreFetchWaitsForTheBlob(t *testing.T) {
	for _, tc := range []struct {
		name     string
		appears  time.Duration // 0: never
		opts     claimcheck.StoreOptions
		took     time.Duration
		requests int
	}{
		{"never", 0, claimcheck.StoreOptions{}, 2 * time.Second, 3},
		{"in time", 1500 * time.Millisecond, claimcheck.StoreOptions{}, 2 * time.Second, 3},
		{"late, with patience", 3 * time.Second, claimcheck.StoreOptions{MissingTries: 5, MissingWait: 8 * time.Second}, 4 * time.Second, 3},
		{"no patience", 0, claimcheck.StoreOptions{MissingTries: 1}, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var srv blobtest.Server
				srv.Put(blobtest.DevAccount, "inbox", "seed", []byte("x"), nil)
				store := startStore(t, &srv, &tc.opts)
				if tc.appears > 0 {
					time.AfterFunc(tc.appears, func() { srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", []byte("hello"), nil) })
				}
				start := time.Now()
				got, err := store.Fetch(t.Context(), document("acme/a.txt"), "")
				if took := time.Since(start); took != tc.took {
					t.Errorf("Fetch took %v, want %v", took, tc.took)
				}
				if tc.appears > 0 {
					if err != nil || got.Text != "hello" {
						t.Errorf("Fetch = %v, want the document", err)
					}
				} else {
					wantDocumentError(t, err, claimcheck.OutcomeUnreadable, claimcheck.ReasonBlobMissing)
				}
				if n := srv.Stats().Total(); n != tc.requests {
					t.Errorf("%d requests, want %d", n, tc.requests)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var srv blobtest.Server
		srv.Put(blobtest.DevAccount, "inbox", "seed", []byte("x"), nil)
		store := startStore(t, &srv, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := store.Fetch(ctx, document("acme/a.txt"), ""); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 500*time.Millisecond {
			t.Errorf("Fetch cancelled while waiting = %v after %v", err, time.Since(start))
		}
	})
}

func TestStoreFetchWaitsForCopies(t *testing.T) {
	pending := &blobtest.PutOptions{ContentType: "text/plain", CopyStatus: "pending"}
	synctest.Test(t, func(t *testing.T) {
		var srv blobtest.Server
		srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", nil, pending)
		store := startStore(t, &srv, nil)
		_, err := store.Fetch(t.Context(), document("acme/a.txt"), "")
		var got *claimcheck.DependencyError
		if !errors.As(err, &got) || got.Misconfigured || got.Code != "CopyPending" {
			t.Errorf("Fetch of an unfinished copy = %v, want a passing *DependencyError", err)
		}
		time.AfterFunc(time.Second/2, func() {
			srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", []byte("hello"), &blobtest.PutOptions{ContentType: "text/plain", CopyStatus: "success"})
		})
		if doc, err := store.Fetch(t.Context(), document("acme/a.txt"), ""); err != nil || doc.Text != "hello" {
			t.Errorf("Fetch of a copy that finishes = %v, %v", doc, err)
		}
	})
}

func TestStoreFetchMissingContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var srv blobtest.Server
		store := startStore(t, &srv, nil)
		_, err := store.Fetch(t.Context(), document("acme/a.txt"), "")
		var got *claimcheck.DependencyError
		if !errors.As(err, &got) || !got.Misconfigured || got.Code != "ContainerNotFound" {
			t.Errorf("Fetch = %v, want a misconfigured *DependencyError", err)
		}
	})
}

// listenStore serves srv on a loopback port, whose sockets push back as a network does.
func listenStore(t testing.TB, srv *blobtest.Server, opts *claimcheck.StoreOptions) (*claimcheck.Store, claimcheck.Reference) {
	t.Helper()
	addr, err := srv.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	base := "http://" + addr.String()
	store, err := claimcheck.NewStore(base+"/"+blobtest.DevAccount+"/results", claimcheck.OpenConnectionString(srv.ConnectionString(base)), opts)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := claimcheck.ParseReference(base + "/" + blobtest.DevAccount + "/inbox/acme/a.txt")
	if err != nil {
		t.Fatal(err)
	}
	return store, ref
}

// TestStoreFetchMemory holds the promise of one buffer: reading allocates little more than the document itself.
func TestStoreFetchMemory(t *testing.T) {
	const size = 4 << 20
	var srv blobtest.Server
	srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", bytes.Repeat([]byte("x"), size), nil)
	store, ref := listenStore(t, &srv, nil)
	read := func() {
		if _, err := store.Fetch(t.Context(), ref, ""); err != nil {
			t.Fatal(err)
		}
	}
	read()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	start := m.TotalAlloc
	for range 4 {
		read()
	}
	runtime.ReadMemStats(&m)
	if per := (m.TotalAlloc - start) / 4; per > size*5/4 {
		t.Errorf("one read of %d bytes allocates %d bytes, client and server together", size, per)
	}
}

// TestStoreFetchRefusesLargeBlobsUnread looks at what crossed the wire.
func TestStoreFetchRefusesLargeBlobsUnread(t *testing.T) {
	const size = 64 << 20
	served := make(chan blobtest.Event, 8)
	srv := blobtest.Server{Observe: func(e blobtest.Event) { served <- e }}
	srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", bytes.Repeat([]byte("x"), size), nil)
	store, ref := listenStore(t, &srv, &claimcheck.StoreOptions{MaxDocument: 1024})
	_, err := store.Fetch(t.Context(), ref, "")
	wantDocumentError(t, err, claimcheck.OutcomeUnreadable, claimcheck.ReasonTooLarge)
	if e := <-served; e.Sent > size/2 {
		t.Errorf("%d of %d bytes were sent", e.Sent, size)
	}
}

func TestStoreFetchVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queries []string
		srv := new(blobtest.Server)
		transport := serve(t, recordQueries(srv, &queries))
		store, err := claimcheck.NewStore(results, claimcheck.OpenConnectionString(srv.ConnectionString("http://127.0.0.1:10000")),
			&claimcheck.StoreOptions{Transport: transport, MissingTries: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range []string{"versionid=2026-01-10T08:00:00.1234567Z", "snapshot=2026-01-10T08:00:00.1234567Z"} {
			ref, err := claimcheck.ParseReference(account + "/inbox/acme/a.txt?" + query)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = store.Fetch(t.Context(), ref, "") // which versions there are is the service's business
		}
		want := []string{"versionid=2026-01-10T08:00:00.1234567Z", "snapshot=2026-01-10T08:00:00.1234567Z"}
		if diff := cmp.Diff(want, queries); diff != "" {
			t.Errorf("the queries sent differ (-want +got):\n%s", diff)
		}
	})
}

// BenchmarkStoreFetch measures one read over a loopback connection, emulator included.
func BenchmarkStoreFetch(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			var srv blobtest.Server
			srv.Put(blobtest.DevAccount, "inbox", "acme/a.txt", bytes.Repeat([]byte("x"), size), nil)
			store, ref := listenStore(b, &srv, nil)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := store.Fetch(b.Context(), ref, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
