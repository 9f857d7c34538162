package blobtest

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// Request is what a Fault hook is told.
type Request struct {
	Operation Operation
	Account   string
	Container string      // "" for operations on an account
	Blob      string      // "" for operations on a container
	Header    http.Header // the request's own: read only
	Attempt   int         // counts, from 1, the requests with this operation on this name
}

// Fault is something that goes wrong with one request. Its fields combine: first the delay, then the effect if
// AfterEffect is set, then one of Cut, Hang and Status.
type Fault struct {
	// Delay is waited for first; a client that gives up ends it. Alone it makes a slow success.
	Delay time.Duration

	// AfterEffect lets the operation happen and only then loses or replaces its answer, as when a connection breaks
	// between the write and the acknowledgement.
	AfterEffect bool

	// Status, such as 503, is answered instead. Code is the error code with it and Message its text.
	// Default: none; Code and Message by the service's habit for the status.
	Status  int
	Code    string
	Message string

	// RetryAfter goes with Status as Retry-After in whole seconds, or as x-ms-retry-after-ms if it is not whole.
	RetryAfter time.Duration

	// Cut breaks the connection without an answer.
	Cut bool

	// Hang answers nothing until the client gives up or the server closes.
	Hang bool

	// CutBody, when positive, breaks the connection after so many bytes of the answer's body.
	CutBody int64
}

// Event is one request that was served. It never holds a query or a header, so it may be logged.
type Event struct {
	Operation Operation
	Account   string
	Container string
	Blob      string
	Status    int    // 0 = no answer was sent
	Code      string // error code, "" on success
	Received  int64  // bytes of the request's body
	Sent      int64  // bytes of the answer's body
	Start     time.Time
	Duration  time.Duration
	Faulted   bool // the Fault hook had a hand in it
}

// replaces reports whether the fault takes the place of the operation's own answer.
func (f *Fault) replaces() bool {
	return f != nil && (f.Cut || f.Hang || f.Status != 0)
}

func (s *Server) fault(r *http.Request, t target) *Fault {
	if s.Fault == nil {
		return nil
	}
	key := attemptKey{t.operation, blobKey{t.account, t.container, t.blob}}
	s.mu.Lock()
	if s.attempts == nil {
		s.attempts = make(map[attemptKey]int)
	}
	s.attempts[key]++
	attempt := s.attempts[key]
	s.mu.Unlock()
	return s.Fault(Request{
		Operation: t.operation, Account: t.account, Container: t.container, Blob: t.blob,
		Header: r.Header, Attempt: attempt,
	})
}

// answerFault carries out the part of a fault that replaces the answer.
func (s *Server) answerFault(w http.ResponseWriter, r *http.Request, t target, fault *Fault, requestID string, ev *Event) {
	if fault.Cut {
		s.count(t.operation, 0)
		panic(http.ErrAbortHandler)
	}
	// net/http notices that a client is gone only after the body was read.
	_, _ = io.CopyN(io.Discard, r.Body, s.maxBody())
	if fault.Hang {
		s.count(t.operation, 0)
		s.wait(r, -1)
		panic(http.ErrAbortHandler)
	}
	f := &failure{status: fault.Status, code: fault.Code, message: fault.Message, header: make(http.Header)}
	if f.code == "" {
		f.code = codeFor(f.status)
	}
	if f.message == "" {
		_, f.message = describe(f.code)
	}
	if fault.RetryAfter%time.Second != 0 {
		f.header.Set("x-ms-retry-after-ms", strconv.FormatInt(fault.RetryAfter.Milliseconds(), 10))
	} else if fault.RetryAfter > 0 {
		f.header.Set("Retry-After", strconv.FormatInt(int64(fault.RetryAfter/time.Second), 10))
	}
	resp := f.response(requestID, time.Now().UTC())
	ev.Status, ev.Code = resp.status, resp.code
	s.count(t.operation, resp.status)
	s.write(w, r, resp, requestID, -1, ev)
}

// wait returns true after d, and false if the client or the server ends it first. A negative d is for ever.
func (s *Server) wait(r *http.Request, d time.Duration) bool {
	var elapsed <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		elapsed = timer.C
	}
	select {
	case <-elapsed:
		return true
	case <-r.Context().Done():
		return false
	case <-s.closing():
		return false
	}
}
