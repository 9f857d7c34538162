package redact_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"millrace/internal/redact"
)

// canary is the secret that must never come out. It has no shape of its own, so only its place gives it away.
const canary = "CANARYx7Qp9"

func response(t *testing.T, status int, code, body string) error {
	t.Helper()
	u, err := url.Parse("https://user:" + canary + "@acct.blob.core.windows.net/in/acme/a.txt?sv=1&sig=" + canary)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	if code != "" {
		header.Set("x-ms-error-code", code)
	}
	return runtime.NewResponseError(&http.Response{
		StatusCode: status, Status: http.StatusText(status) + " " + canary, Header: header,
		Body: io.NopCloser(strings.NewReader(body)), Request: &http.Request{Method: "GET", URL: u},
	})
}

func TestErrorNeverShowsTheCanary(t *testing.T) {
	refused := errors.New("connection refused")
	sas := "https://acct.blob.core.windows.net/in/acme/a.txt?sv=2025-05-05&sr=b&sig=" + canary + "%3D"
	for _, tc := range []struct {
		name string
		err  error
		keep string // a part worth reading that must survive
	}{
		{"response body", response(t, 403, "AuthorizationFailure", "<Error>"+canary+"</Error>"), "status 403 AuthorizationFailure"},
		{"response without code", response(t, 502, "", "<html>"+canary), "status 502"},
		{"response code", response(t, 400, "Bad code "+canary, ""), "status 400"},
		{"wrapped response", fmt.Errorf("read blob: %w", response(t, 403, "X", canary)), "read blob: status 403 X"},
		{"quoted response", quoting{response(t, 403, "X", canary)}, "status 403 X"},
		{"joined response", errors.Join(refused, response(t, 403, "X", canary)), "connection refused status 403 X"},
		{"url error", &url.Error{Op: "Get", URL: sas, Err: refused}, "get acct.blob.core.windows.net: connection refused"},
		{"url error with bad url", &url.Error{Op: "parse", URL: "ht tp://" + canary + "\x7f", Err: refused}, "connection refused"},
		{"wrapped url error", fmt.Errorf("dial: %w", &url.Error{Op: "Get", URL: sas, Err: refused}), "dial: get acct"},
		{"url in text", errors.New("cannot open " + sas), "cannot open https://acct.blob.core.windows.net/in/acme/a.txt"},
		{"upper-case url in text", errors.New("HTTPS://ACCT/in/a?SIG=" + canary), "HTTPS://ACCT/in/a"},
		{"userinfo in text", errors.New("amqps://root:" + canary + "@ns.servicebus.windows.net/q"), "ns.servicebus.windows.net/q"},
		{"userinfo with slash", errors.New("amqps://root:a/" + canary + "@ns/q"), "amqps://"},
		{"fragment", errors.New("https://h/p#" + canary), "https://h/p"},
		{"storage connection string", errors.New("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + canary + "==;EndpointSuffix=x"), "AccountName=a"},
		{"bus connection string", errors.New("Endpoint=sb://ns/;SharedAccessKeyName=root;SharedAccessKey=" + canary + "="), "SharedAccessKeyName=root"},
		{"bus token", errors.New("SharedAccessSignature sr=sb%3A%2F%2Fns&sig=" + canary + "%3D&se=1&skn=root"), ""},
		{"bus token as pair", errors.New("SharedAccessSignature=sr=x&sig=" + canary), ""},
		{"api-key header", errors.New("api-key: " + canary), "api-key"},
		{"api key in JSON", errors.New(`{"api_key": "` + canary + `","a":1}`), `"a":1`},
		{"api key in escaped JSON", errors.New(`{\"api_key\":\"` + canary + `\"}`), "api_key"},
		{"bearer", errors.New("Authorization: Bearer " + canary + ".x.y"), "Authorization"},
		{"bare bearer", errors.New("sent bearer " + canary), "sent bearer"},
		{"shared key", errors.New("SharedKey acct:" + canary + "="), "SharedKey"},
		{"password", errors.New("client_secret=" + canary), "client_secret"},
		{"encoded pair", errors.New("sig%3D" + canary), "sig"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for what, err := range map[string]error{
				"Error": redact.Error(tc.err), "Wrap": redact.Wrap("open", tc.err), "twice": redact.Error(redact.Error(tc.err)),
				"around": fmt.Errorf("outer: %w", redact.Error(tc.err)), "again": redact.Error(fmt.Errorf("outer: %w", redact.Error(tc.err))),
			} {
				for _, text := range renderings(t, err) {
					if strings.Contains(text, canary) {
						t.Errorf("%s prints the secret: %s", what, text)
					}
					if !utf8.ValidString(text) {
						t.Errorf("%s prints invalid UTF-8: %q", what, text)
					}
				}
				if !strings.Contains(err.Error(), tc.keep) {
					t.Errorf("%s = %q, want it to keep %q", what, err, tc.keep)
				}
				if !errors.Is(err, tc.err) {
					t.Errorf("errors.Is(%s, cause) = false, want true", what)
				}
			}
		})
	}
}

// renderings prints err in each way a program might.
func renderings(t *testing.T, err error) []string {
	t.Helper()
	texts := []string{err.Error()}
	if _, standard := err.(interface{ Format(fmt.State, rune) }); standard {
		texts = append(texts, fmt.Sprintf("%#v", err)) // a plain fmt wrapper prints pointers' targets as addresses only
	}
	for _, verb := range []string{"%v", "%+v", "%s", "%q", "%x"} {
		text := fmt.Sprintf(verb, err)
		if verb != "%x" {
			texts = append(texts, text)
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Error("failed", "err", err)
	slog.New(slog.NewTextHandler(&log, nil)).Error("failed", "err", err)
	encoded, jsonErr := json.Marshal(map[string]any{"err": err})
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	return append(texts, log.String(), string(encoded))
}

// quoting renders its cause in a form that a plain replacement does not find.
type quoting struct{ err error }

func (q quoting) Error() string { return fmt.Sprintf("odd: %q", q.err.Error()) }
func (q quoting) Unwrap() error { return q.err }

func TestErrorKeepsTheChain(t *testing.T) {
	err := redact.Wrap("read blob", response(t, 404, "BlobNotFound", ""))
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.StatusCode != 404 {
		t.Errorf("errors.As(%v) found %v, want the response", err, response)
	}
	if got, want := err.Error(), "read blob: status 404 BlobNotFound"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if redact.Error(nil) != nil || redact.Wrap("x", nil) != nil {
		t.Error("a nil error did not stay nil")
	}
}

func TestStringBounds(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "queue is disabled", "queue is disabled"},
		{"line ends", "one\r\n\ttwo\x00three", "one two three"},
		{"invalid UTF-8", "a\xff\xfeb", "a\uFFFDb"},
		{"one long word", strings.Repeat("x", 5000), "REDACTED …"},
		{"hash survives", strings.Repeat("0123456789abcdef", 4), strings.Repeat("0123456789abcdef", 4)},
		{"key by shape", strings.Repeat("Ab1+", 21) + "Ab==", "REDACTED"},
		{"provider key", "sk-" + strings.Repeat("a1", 10), "REDACTED"},
		{"web token", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.abc", "REDACTED"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := redact.String(tc.in); got != tc.want {
				t.Errorf("String(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
	long := redact.String(strings.Repeat("€ ", 10_000))
	if len(long) > redact.MaxLength || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("String of a long text has %d bytes, valid %v", len(long), utf8.ValidString(long))
	}
}

func BenchmarkString(b *testing.B) {
	for name, text := range map[string]string{
		"short": "get acct.blob.core.windows.net: connection refused",
		"8KiB":  strings.Repeat("sig api_key: https://a:b@h/p?x ", 300),
	} {
		b.Run("text="+name, func(b *testing.B) {
			for b.Loop() {
				redact.String(text)
			}
		})
	}
}

func FuzzString(f *testing.F) {
	f.Add("https://a:b@h/p?sig=c#d", "x")
	f.Add("\xffAccountKey=", "secret")
	f.Fuzz(func(t *testing.T, before, after string) {
		got := redact.String(before + "?sig=" + canary + "&" + after)
		if len(got) > redact.MaxLength || !utf8.ValidString(got) {
			t.Errorf("String gave %d bytes, valid UTF-8 %v", len(got), utf8.ValidString(got))
		}
		if strings.Contains(got, canary) && !strings.Contains(before+after, canary) {
			t.Errorf("String(%q) shows the secret: %q", before, got)
		}
	})
}
