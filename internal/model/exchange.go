package model

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// maxResponse bounds a response body. The longest answer of any model is far below 1 MiB.
const maxResponse = 8 << 20

var errResponseTooLarge = errors.New("response is too large")

// exchange is the transport of one call. It sits below the SDK and its token requests, so what it sees is the request to the
// deployment and nothing else, and it keeps the whole response, which the SDK gives up for some error bodies.
type exchange struct {
	transport http.RoundTripper
	plain     bool
	sent      func()

	mu       sync.Mutex
	ended    bool
	notified bool
	entered  bool // RoundTrip was called
	traced   bool // the transport reports its progress
	wrote    bool // bytes of the request may have left
	response Response
	whole    bool // response is complete
}

// RoundTrip implements [http.RoundTripper]. The SDK calls it twice when a token was challenged for more claims; the last
// response counts.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	x.mu.Lock()
	x.entered, x.whole = true, false
	x.mu.Unlock()

	r = r.WithContext(httptrace.WithClientTrace(r.Context(), x.trace()))
	if x.plain {
		u := *r.URL
		u.Scheme = "http"
		r.URL = &u
	}
	response, err := x.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	x.written()
	body, err := readBounded(response.Body, response.ContentLength)
	if err != nil && !statusIsEnough(response.StatusCode) {
		return nil, err
	}
	x.mu.Lock()
	x.response = Response{Status: response.StatusCode, Header: response.Header, Body: body}
	x.whole = true
	x.mu.Unlock()
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// statusIsEnough reports whether the status and the headers of a response say what to do when its body was lost.
func statusIsEnough(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// readBounded reads body, which is said to have size bytes, or -1 if nobody said so.
func readBounded(body io.ReadCloser, size int64) ([]byte, error) {
	var data bytes.Buffer
	if 0 < size && size <= maxResponse {
		data.Grow(int(size) + bytes.MinRead) // the room that ReadFrom wants at the end
	}
	_, err := data.ReadFrom(io.LimitReader(body, maxResponse+1))
	if closeErr := body.Close(); err == nil {
		err = closeErr
	}
	if err == nil && data.Len() > maxResponse {
		err = errResponseTooLarge
	}
	if err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

func (x *exchange) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.traced = true
		},
		WroteHeaders: func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.wrote = true
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				x.written()
			}
		},
	}
}

// written notes that the request is on the wire, and tells the caller once. A response proves it too, for transports that
// report nothing.
func (x *exchange) written() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wrote = true
	if x.ended || x.notified || x.sent == nil {
		return
	}
	x.notified = true
	x.sent()
}

// reached reports whether any byte of the request may have left. A transport that does not report its progress is not trusted.
func (x *exchange) reached() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.wrote || x.entered && !x.traced
}

func (x *exchange) result() (Response, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.response, x.whole
}

// end makes sure that the caller hears nothing after its call has returned: the transport may still be writing.
func (x *exchange) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
}
