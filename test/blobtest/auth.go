package blobtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DevAccount and DevKey are the account and key that every Azure storage emulator knows; they are public and protect
// nothing ("Use the Azurite emulator for local Azure Storage development").
const (
	DevAccount = "devstoreaccount1"
	DevKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// clockSkew is how far a signed request's date may be from the server's ("Authorize with Shared Key").
const clockSkew = 15 * time.Minute

// authorize says whether a request may act on its account. Details never repeat what was sent.
func (s *Server) authorize(r *http.Request, t target, now time.Time) *failure {
	key, known := s.key(t.account)
	if !known {
		f := failed("ResourceNotFound")
		f.message = "The specified account does not exist."
		return f
	}
	scheme, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case scheme == "SharedKey":
		return verifySharedKey(r, t, key, credential, now)
	case strings.EqualFold(scheme, "Bearer"):
		return s.verifyBearer(r, strings.TrimSpace(credential))
	case scheme != "":
		return failed("InvalidAuthenticationInfo")
	case t.query.Has("sig") && s.AllowSAS:
		return nil
	case t.query.Has("sig"):
		return denied("Shared access signatures are not accepted here.")
	}
	return failed("NoAuthenticationInformation")
}

func denied(detail string) *failure {
	f := failed("AuthenticationFailed")
	f.detail = detail
	return f
}

func (s *Server) verifyBearer(r *http.Request, token string) *failure {
	if s.BearerNeedsTLS && r.TLS == nil {
		return denied("Authentication scheme Bearer is not supported over plain HTTP.")
	}
	if token == "" || (s.Token != "" && !hmac.Equal([]byte(token), []byte(s.Token))) {
		return failed("InvalidAuthenticationInfo")
	}
	return nil
}

func verifySharedKey(r *http.Request, t target, key, credential string, now time.Time) *failure {
	account, signature, ok := strings.Cut(credential, ":")
	if !ok || account != t.account {
		return denied("The account of the Authorization header is not the account of the request.")
	}
	given, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return denied("The signature is not in Base64.")
	}
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return denied("The account's key is not in Base64.")
	}
	date := r.Header.Get("x-ms-date")
	if date == "" {
		date = r.Header.Get("Date")
	}
	sent, err := http.ParseTime(date)
	if err != nil {
		return denied("The request has no valid date.")
	}
	if sent.Before(now.Add(-clockSkew)) || sent.After(now.Add(clockSkew)) {
		return denied("The request's date is more than 15 minutes away from the server's.")
	}
	for _, order := range []func(a, b string) int{strings.Compare, compareCollated} {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(stringToSign(r, t, order)))
		if hmac.Equal(mac.Sum(nil), given) {
			return nil
		}
	}
	return denied("The MAC signature found in the HTTP request is not the same as any computed signature.")
}

// stringToSign is the text of "Authorize with Shared Key" for versions since 2015-02-21 (a zero length is empty).
func stringToSign(r *http.Request, t target, order func(a, b string) int) string {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	date := r.Header.Get("Date")
	if r.Header.Get("x-ms-date") != "" {
		date = ""
	}
	h := r.Header
	var b strings.Builder
	for _, line := range []string{
		r.Method, h.Get("Content-Encoding"), h.Get("Content-Language"), length, h.Get("Content-MD5"),
		h.Get("Content-Type"), date, h.Get("If-Modified-Since"), h.Get("If-Match"), h.Get("If-None-Match"),
		h.Get("If-Unmodified-Since"), h.Get("Range"),
	} {
		b.WriteString(line + "\n")
	}
	canonicalHeaders(&b, h, order)
	canonicalResource(&b, t)
	return b.String()
}

func canonicalHeaders(b *strings.Builder, h http.Header, order func(a, b string) int) {
	var names []string
	values := make(map[string]string)
	for name, v := range h {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-ms-") {
			names = append(names, lower)
			values[lower] = strings.TrimSpace(strings.Join(v, ","))
		}
	}
	slices.SortFunc(names, order)
	for _, name := range names {
		b.WriteString(name + ":" + values[name] + "\n")
	}
}

// canonicalResource begins with the account, and in path style the path repeats it.
func canonicalResource(b *strings.Builder, t target) {
	b.WriteString("/" + t.account)
	if t.path == "" {
		b.WriteString("/")
	}
	b.WriteString(t.path)
	params := make(map[string][]string, len(t.query))
	var names []string
	for name, values := range t.query {
		lower := strings.ToLower(name)
		if _, seen := params[lower]; !seen {
			names = append(names, lower)
		}
		params[lower] = append(params[lower], values...)
	}
	slices.Sort(names)
	for _, name := range names {
		slices.Sort(params[name])
		b.WriteString("\n" + name + ":" + strings.Join(params[name], ","))
	}
}

// compareCollated orders header names as the service's own culture-aware comparison does, in which a hyphen counts
// only between names that are otherwise equal and an underscore stands before digits and letters. The documentation
// says "lexicographically"; clients are found with either order, and they differ only for unusual metadata names.
func compareCollated(a, b string) int {
	if c := strings.Compare(collationKey(a), collationKey(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func collationKey(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '-', '\'':
			return -1
		case '_':
			return '!'
		}
		return r
	}, name)
}
