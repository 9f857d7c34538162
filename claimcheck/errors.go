package claimcheck

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxDetail is the largest number of bytes that the detail of an error and of a result has. It is far below the 4,096
// characters that Service Bus allows a dead-letter description.
const MaxDetail = 200

// ErrNoResult is returned by Store.Read when there is no result of that name.
var ErrNoResult = errors.New("no such result")

// PoisonError says that a message cannot be understood or may not be followed, on any delivery. Its text is valid UTF-8,
// short, and holds no value out of the message.
type PoisonError struct {
	Reason Reason
	Field  string // the field at fault, empty when it is the body as a whole
	Detail string // what is wrong and what to do, at most MaxDetail bytes
}

func (e *PoisonError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s: %s", e.Reason, e.Detail)
	}
	return fmt.Sprintf("%s: %s: %s", e.Reason, e.Field, e.Detail)
}

// DocumentError says that this document can never succeed as it is. Outcome, Reason and Detail go into its result as they
// are. The detail holds no text of the document.
type DocumentError struct {
	Outcome Outcome
	Reason  Reason
	Detail  string // at most MaxDetail bytes
}

func (e *DocumentError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Outcome, e.Reason, e.Detail)
}

// DependencyError says that storage, not the message, is in trouble: the same message can succeed later.
type DependencyError struct {
	Dependency    string // "blob:<account>" where documents are read, "results:<account>" where results are
	Misconfigured bool   // waiting alone will not help: a role, a key, a container or an endpoint is wrong
	Status        int    // HTTP status, 0 if there was no reply
	Code          string // the service's error code, empty if it gave none
	Err           error  // the cause, wrapped so that its text is safe to log
}

func (e *DependencyError) Error() string {
	if e.Err == nil {
		return e.Dependency + ": unavailable"
	}
	return e.Dependency + ": " + e.Err.Error()
}

func (e *DependencyError) Unwrap() error { return e.Err }

// poison makes a *PoisonError with a detail cut to its bound.
func poison(reason Reason, field, format string, args ...any) *PoisonError {
	return &PoisonError{Reason: reason, Field: field, Detail: ShortDetail(fmt.Sprintf(format, args...))}
}

// unreadable makes the *DocumentError of a document that cannot be read as text.
func unreadable(reason Reason, format string, args ...any) *DocumentError {
	return &DocumentError{Outcome: OutcomeUnreadable, Reason: reason, Detail: ShortDetail(fmt.Sprintf(format, args...))}
}

// short cuts s to MaxDetail bytes at a character boundary. What is put into a detail is made of our own words, numbers and
// names whose characters were checked, so there is nothing in it to hide.
func ShortDetail(s string) string {
	if len(s) <= MaxDetail {
		return s
	}
	const ellipsis = "…"
	s = s[:MaxDetail-len(ellipsis)]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return strings.TrimRight(s, " ") + ellipsis
}
