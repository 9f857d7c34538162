// Package redact makes an error safe to log: what Error() returns never holds a URL with a query or user information, a
// key, a token or the body of a reply.
//
// The chain stays intact underneath: errors.Is and errors.As still find the cause. A value taken out of the chain that
// way is the original and prints as the original does, so print the wrapper, not what was taken out of it.
package redact

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// MaxLength is the largest number of bytes that String and the text of an Error have. A longer text is cut at a
// character boundary and ends with "…".
const MaxLength = 512

// Error wraps err in an error whose text is safe to log in every form fmt and log/slog print it. Nil stays nil, and an
// error made by this package is returned as it is.
//
// An *azcore.ResponseError reads "status 403 AuthorizationFailure", a *url.Error keeps its operation and host, and any
// other text passes through String.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*safeError); ok {
		return e
	}
	return &safeError{text: String(describe(err)), err: err}
}

// Wrap is Error with what was being done in front: "verb: text". Nil stays nil. The verb is a constant of the caller.
func Wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return &safeError{text: String(verb + ": " + describe(err)), err: err}
}

// safeError holds the text that was made when the error was wrapped, so that printing it later reads nothing of the
// cause.
type safeError struct {
	text string
	err  error
}

func (e *safeError) Error() string { return e.text }

func (e *safeError) Unwrap() error { return e.err }

// Format answers every verb, %#v too, with the safe text: without it %#v would print the fields.
func (e *safeError) Format(f fmt.State, verb rune) {
	if verb == 'q' {
		fmt.Fprintf(f, "%q", e.text)
		return
	}
	fmt.Fprint(f, e.text)
}

// MarshalText gives encoders, which do not look for Error, the same text.
func (e *safeError) MarshalText() ([]byte, error) { return []byte(e.text), nil }

// describe renders err with its dangerous parts replaced where they stand: wrapping texts are kept, the text of a reply
// or of a URL inside them is not.
func describe(err error) string {
	switch e := err.(type) {
	case *safeError:
		return e.text
	case *azcore.ResponseError:
		return describeResponse(e)
	case *url.Error:
		return describeURL(e)
	}
	text := err.Error()
	for _, inner := range unwrapped(err) {
		raw, safe := inner.Error(), describe(inner)
		if raw == safe {
			continue
		}
		if raw == "" || !strings.Contains(text, raw) {
			if dangerous(inner) {
				// The wrapper rendered its cause in a form of its own, which may hold the reply's body.
				return safe
			}
			continue
		}
		text = strings.ReplaceAll(text, raw, safe)
	}
	return text
}

// describeResponse keeps status and error code. The default text also holds the URL's path and the whole body.
func describeResponse(e *azcore.ResponseError) string {
	code := clean(e.ErrorCode)
	if code == "" {
		return fmt.Sprintf("status %d", e.StatusCode)
	}
	return fmt.Sprintf("status %d %s", e.StatusCode, code)
}

// describeURL keeps the operation and the host: a path may name a document and a query may hold a signature.
func describeURL(e *url.Error) string {
	host := "unreadable URL"
	if u, err := url.Parse(e.URL); err == nil && u.Host != "" {
		host = u.Host
	}
	text := strings.ToLower(e.Op) + " " + host
	if e.Err == nil {
		return text
	}
	return text + ": " + describe(e.Err)
}

// clean keeps an error code only when it looks like one: the service's codes are words.
func clean(code string) string {
	if len(code) > 64 {
		return ""
	}
	for _, r := range code {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-.", r) {
			return ""
		}
	}
	return code
}

// dangerous reports whether a reply or a URL is anywhere in err's chain.
func dangerous(err error) bool {
	var response *azcore.ResponseError
	var request *url.Error
	return errors.As(err, &response) || errors.As(err, &request)
}

// unwrapped lists the direct causes of err.
func unwrapped(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return []error{inner}
		}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}
