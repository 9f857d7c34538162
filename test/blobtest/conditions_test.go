package blobtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/test/blobtest"
)

// do sends one request of a client that holds a bearer token.
func do(s *blobtest.Server, method, target, body string, header map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer x")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestServerConditions(t *testing.T) {
	const (
		other = `"0x8D0000000000000"`
		own   = "own" // replaced by the blob's ETag
	)
	past, future := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, tc := range []struct {
		method, query string // the operation
		name          string // "a" exists, "new" does not
		header        string // name: value, …
		want          int
		code          string
	}{
		{"GET", "", "a", "If-Match: own", 200, ""},
		{"GET", "", "a", "If-Match: bare", 200, ""},
		{"GET", "", "a", "If-Match: *", 200, ""},
		{"GET", "", "a", "If-Match: other", 412, "ConditionNotMet"},
		{"GET", "", "a", "If-Match: both", 200, ""},
		{"GET", "", "new", "If-Match: other", 404, "BlobNotFound"},
		{"HEAD", "", "new", "If-Match: *", 404, "BlobNotFound"},
		{"HEAD", "", "a", "If-Match: other", 412, "ConditionNotMet"},
		{"GET", "", "a", "If-None-Match: own", 304, "ConditionNotMet"},
		{"HEAD", "", "a", "If-None-Match: own", 304, "ConditionNotMet"},
		{"GET", "", "a", "If-None-Match: other", 200, ""},
		{"GET", "", "a", "If-None-Match: *", 400, "UnsatisfiableCondition"},
		{"GET", "", "a", "If-Modified-Since: past", 200, ""},
		{"GET", "", "a", "If-Modified-Since: future", 304, "ConditionNotMet"},
		{"GET", "", "a", "If-Unmodified-Since: past", 412, "ConditionNotMet"},
		{"GET", "", "a", "If-Unmodified-Since: future", 200, ""},
		{"GET", "", "a", "If-None-Match: own, If-Modified-Since: past", 200, ""},
		{"GET", "", "a", "If-Modified-Since: yesterday", 400, "InvalidHeaderValue"},

		{"PUT", "", "a", "If-None-Match: *", 409, "BlobAlreadyExists"},
		{"PUT", "", "new", "If-None-Match: *", 201, ""},
		{"PUT", "", "a", "If-None-Match: own", 412, "ConditionNotMet"},
		{"PUT", "", "a", "If-Match: own", 201, ""},
		{"PUT", "", "a", "If-Match: other", 412, "ConditionNotMet"},
		{"PUT", "", "new", "If-Match: other", 412, "ConditionNotMet"},
		{"PUT", "", "new", "If-Match: *", 412, "ConditionNotMet"},
		{"PUT", "", "a", "If-Match: both", 400, "MultipleConditionHeadersNotSupported"},
		{"PUT", "", "a", "If-Match: own, If-None-Match: *", 400, "MultipleConditionHeadersNotSupported"},
		{"PUT", "", "a", "If-Unmodified-Since: past", 412, "ConditionNotMet"},
		{"PUT", "", "a", "If-Modified-Since: past", 201, ""},
		{"PUT", "", "a", "If-Match: own, If-Unmodified-Since: past", 201, ""},

		{"PUT", "?comp=blocklist", "a", "If-None-Match: *", 409, "BlobAlreadyExists"},
		{"PUT", "?comp=blocklist", "new", "If-None-Match: *", 201, ""},
		{"PUT", "?comp=metadata", "a", "If-Match: own", 200, ""},
		{"PUT", "?comp=metadata", "a", "If-Match: other", 412, "ConditionNotMet"},
		{"PUT", "?comp=metadata", "new", "If-Match: other", 404, "BlobNotFound"},
		{"DELETE", "", "a", "If-Match: other", 412, "ConditionNotMet"},
		{"DELETE", "", "a", "If-Match: own", 202, ""},
		{"DELETE", "", "new", "", 404, "BlobNotFound"},
	} {
		t.Run(fmt.Sprintf("%s%s %s %s", tc.method, tc.query, tc.name, tc.header), func(t *testing.T) {
			s := &blobtest.Server{}
			etag := s.Put(account, "docs", "a", []byte("x"), nil)
			values := map[string]string{own: etag, "bare": strings.Trim(etag, `"`), "other": other, "both": other + ", " + etag, "past": past, "future": future}
			header := map[string]string{"x-ms-blob-type": "BlockBlob"}
			for field := range strings.SplitSeq(tc.header, ", ") {
				name, value, ok := strings.Cut(field, ": ")
				if v, known := values[value]; known {
					value = v
				}
				if ok {
					header[name] = value
				}
			}
			body := ""
			if tc.query == "?comp=blocklist" {
				body = "<BlockList></BlockList>"
			}
			w := do(s, tc.method, "/"+account+"/docs/"+tc.name+tc.query, body, header)
			if code := w.Header().Get("x-ms-error-code"); w.Code != tc.want || code != tc.code {
				t.Errorf("got %d %s, want %d %s", w.Code, code, tc.want, tc.code)
			}
		})
	}
}

// The answers that clients take apart by hand.
func TestServerWire(t *testing.T) {
	s := &blobtest.Server{}
	s.Put(account, "docs", "a", []byte("0123456789"), nil)
	for _, tc := range []struct {
		name, method, target string
		header               map[string]string
		want                 int
		code                 string
		has                  string // "Header: value" of the answer
	}{
		{"range past the end", "GET", "/docs/a", map[string]string{"x-ms-range": "bytes=20-"}, 416, "InvalidRange", "Content-Range: bytes */10"},
		{"x-ms-range wins", "GET", "/docs/a", map[string]string{"x-ms-range": "bytes=1-2", "Range": "bytes=5-"}, 206, "", "Content-Range: bytes 1-2/10"},
		{"suffix range", "GET", "/docs/a", map[string]string{"Range": "bytes=-3"}, 400, "InvalidHeaderValue", ""},
		{"client request id", "GET", "/docs/a", map[string]string{"x-ms-client-request-id": "abc"}, 200, "", "x-ms-client-request-id: abc"},
		{"version", "GET", "/docs/a", map[string]string{"x-ms-version": "2021-12-02"}, 200, "", "x-ms-version: 2021-12-02"},
		{"error body", "GET", "/docs/b", nil, 404, "BlobNotFound", "Content-Type: application/xml"},
		{"no blob type", "PUT", "/docs/b", nil, 400, "MissingRequiredHeader", ""},
		{"append blob", "PUT", "/docs/b", map[string]string{"x-ms-blob-type": "AppendBlob"}, 501, "NotImplemented", ""},
		{"copy", "PUT", "/docs/b", map[string]string{"x-ms-copy-source": "https://h/c/b"}, 501, "NotImplemented", ""},
		{"lease", "PUT", "/docs/a?comp=lease", nil, 501, "NotImplemented", ""},
		{"bad metadata", "PUT", "/docs/b", map[string]string{"x-ms-blob-type": "BlockBlob", "x-ms-meta-a-b": "1"}, 400, "InvalidMetadata", ""},
		{"metadata too large", "PUT", "/docs/b", map[string]string{"x-ms-blob-type": "BlockBlob", "x-ms-meta-a": strings.Repeat("x", 9000)}, 400, "MetadataTooLarge", ""},
		{"bad MD5", "PUT", "/docs/b", map[string]string{"x-ms-blob-type": "BlockBlob", "Content-MD5": "abc"}, 400, "InvalidMd5", ""},
		{"name not UTF-8", "GET", "/docs/%ff", nil, 400, "InvalidUri", ""},
		{"name too long", "GET", "/docs/" + strings.Repeat("x", 1025), nil, 400, "InvalidUri", ""},
		{"metadata", "GET", "/docs/a?comp=metadata", nil, 200, "", "Content-Length: 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := do(s, tc.method, "/"+account+tc.target, "", tc.header)
			if code := w.Header().Get("x-ms-error-code"); w.Code != tc.want || code != tc.code {
				t.Errorf("got %d %s, want %d %s", w.Code, code, tc.want, tc.code)
			}
			name, value, _ := strings.Cut(tc.has, ": ")
			if got := w.Header().Get(name); got != value {
				t.Errorf("%s = %q, want %q", name, got, value)
			}
			if w.Header().Get("x-ms-request-id") == "" || w.Header().Get("Date") == "" {
				t.Error("answer has no request id or date")
			}
			if w.Code >= 400 && !strings.Contains(w.Body.String(), "<Error><Code>"+tc.code+"</Code><Message>") {
				t.Errorf("body = %s, want the error %s", w.Body, tc.code)
			}
		})
	}
}
