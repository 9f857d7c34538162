package model

import (
	"strconv"
	"strings"
	"time"
)

// ErrorKind says what a call without an answer means, by what the caller must do next.
type ErrorKind string

// The kinds of an error. The first four are about this document and will not change on a retry.
const (
	// ContextLength means that the document does not fit the model's context window or the service's request size.
	ContextLength ErrorKind = "context_length"
	// RequestParameter means that the service refused something the document or its caller's request brought.
	RequestParameter ErrorKind = "request_parameter"
	// InvalidMedia means that an image, audio or file part could not be read.
	InvalidMedia ErrorKind = "invalid_media"
	// TooLarge means that this one request is larger than the deployment's whole tokens-per-minute limit.
	TooLarge ErrorKind = "tpm_limit"
	// Throttled means that the deployment has no room now.
	Throttled ErrorKind = "throttled"
	// QuotaExhausted means that the account may not spend any more. It does not end by waiting.
	QuotaExhausted ErrorKind = "quota_exhausted"
	// Misconfigured means that the deployment, its credential or a parameter from the configuration is wrong. Every document
	// meets the same.
	Misconfigured ErrorKind = "misconfigured"
	// Unavailable means that the service, or something on the way to it, did not do its work.
	Unavailable ErrorKind = "unavailable"
	// Interrupted means that the caller's context ended first.
	Interrupted ErrorKind = "interrupted"
)

// Error is a call without an answer. Its text names the deployment, the kind, the status, the code and the parameter, and never
// holds a message of the service, a part of the document, a credential or a URL.
type Error struct {
	Kind ErrorKind
	// Host and Deployment name the dependency.
	Host, Deployment string
	// Status is the HTTP status, or 0 if there was no response.
	Status int
	// Code is the service's error code; invalid_response is ours, for a 200 that is no completion. Without a response it is one
	// of timeout, header_timeout, connect_timeout, dns, connection_refused, connection_lost, tls, transport, response_too_large,
	// credential, credential_rejected, cancelled, deadline, and invalid_request for one that was not worth sending.
	Code string
	// Param is the request parameter that the service named, such as max_tokens or messages[0].content.
	Param string
	// RetryAfter is how long the service asks to wait, between MinRetryAfter and MaxRetryAfter. Zero means that it did not say
	// anything usable: the caller backs off by its own rule, never at once.
	RetryAfter time.Duration
	// Sent is true if any part of the request may have reached the service, so that it may have been counted, run and billed.
	Sent bool
	// Limits are the rate limit headers of the response. On a Throttled error, room for the request in RemainingTokens means
	// that it was not the tokens-per-minute limit that refused, but a burst or capacity rule.
	Limits RateLimits
	// RequestID is the service's id of the HTTP request (apim-request-id), which its support asks for.
	RequestID string
	// Err is the cause below HTTP, if there is one, without its URL. For Interrupted it matches the caller's context error and
	// its cause.
	Err error
}

// Error implements error. The text is one printable line of at most 400 bytes.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("model ")
	b.WriteString(clip(e.Host + "/" + e.Deployment))
	b.WriteString(": ")
	b.WriteString(string(e.Kind))
	if e.Status != 0 {
		b.WriteString(", status " + strconv.Itoa(e.Status))
	}
	if e.Code != "" {
		b.WriteString(", code " + clip(e.Code))
	}
	if e.Param != "" {
		b.WriteString(", param " + clip(e.Param))
	}
	if e.RetryAfter > 0 {
		b.WriteString(", retry after " + e.RetryAfter.String())
	}
	return b.String()
}

// clip keeps a part of an error text short and printable, also when an Error was built by hand.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), maxIdentifier)]
}

// Unwrap returns the cause below HTTP.
func (e *Error) Unwrap() error { return e.Err }
