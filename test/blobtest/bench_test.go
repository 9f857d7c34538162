package blobtest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"millrace/test/blobtest"
)

// The handler alone: no socket, no SDK.
func BenchmarkServer(b *testing.B) {
	body := strings.Repeat("x", 4096)
	for _, store := range []string{"memory", "folder"} {
		for _, method := range []string{http.MethodHead, http.MethodGet, http.MethodPut} {
			b.Run("op="+method+"/store="+store+"/size=4KiB", func(b *testing.B) {
				s := &blobtest.Server{}
				if store == "folder" {
					s.Dir = b.TempDir()
				}
				s.Put(account, "docs", "a", []byte(body), nil)
				b.ReportAllocs()
				for b.Loop() {
					payload := ""
					if method == http.MethodPut {
						payload = body
					}
					r := httptest.NewRequest(method, "/"+account+"/docs/a", strings.NewReader(payload))
					r.Header.Set("Authorization", "Bearer x")
					r.Header.Set("x-ms-blob-type", "BlockBlob")
					w := httptest.NewRecorder()
					s.ServeHTTP(w, r)
					if w.Code > 201 {
						b.Fatal(w.Code, w.Body)
					}
				}
			})
		}
	}
}

// One client of the SDK over loopback, Shared Key signed and verified.
func BenchmarkClient(b *testing.B) {
	s := &blobtest.Server{}
	body := []byte(strings.Repeat("x", 4096))
	s.Put(account, "docs", "a", body, nil)
	client, _ := serve(b, s)
	bc := client.ServiceClient().NewContainerClient("docs").NewBlobClient("a")
	b.Run("op=HEAD/size=4KiB", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := bc.GetProperties(b.Context(), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("op=GET/size=4KiB", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			read(b, client, "a", nil)
		}
	})
	b.Run("op=PUT/size=4KiB", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := client.UploadBuffer(b.Context(), "docs", "a", body, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
