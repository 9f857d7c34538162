package model_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/model"
	"millrace/test/modeltest"
)

// wire is a listener whose connections exist in memory only, so that it works inside a bubble.
type wire struct {
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func newWire() *wire { return &wire{accept: make(chan net.Conn), done: make(chan struct{})} }

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.accept:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error   { w.once.Do(func() { close(w.done) }); return nil }
func (w *wire) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case w.accept <- server:
		return client, nil
	case <-w.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubbleClient returns a client with its own transport, all defaults, over memory. Stop ends the server and the connections.
func bubbleClient(t *testing.T, handler http.Handler) (c *model.Client, stop func()) {
	t.Helper()
	w := newWire()
	server := &http.Server{Handler: handler}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(w) }()
	transport := model.NewTransport(nil)
	transport.DialContext = w.dial
	c, err := model.New(model.Deployment{Endpoint: "http://model.test", Name: "gpt", Key: key},
		&model.Options{Transport: transport, AllowHTTP: true})
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	return c, func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-served
	}
}

var errLockLost = errors.New("lock lost")

func TestClientTimes(t *testing.T) {
	hang := modeltest.Behaviour{Kind: modeltest.Hang}
	slowBody := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	for _, tc := range []struct {
		name    string
		handler http.Handler
		context func(context.Context) (context.Context, context.CancelFunc)
		kind    model.ErrorKind
		code    string
		after   time.Duration
		cause   error
	}{
		{"no headers", nil, nil, model.Unavailable, "header_timeout", 5 * time.Minute, nil},
		{"no end of the body", slowBody, nil, model.Unavailable, "timeout", 6 * time.Minute, context.DeadlineExceeded},
		{"the caller's deadline", nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, model.Interrupted, "deadline", time.Second, context.DeadlineExceeded},
		{"a lost lock", nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			stop := time.AfterFunc(time.Minute, func() { cancel(errLockLost) })
			return ctx, func() { stop.Stop(); cancel(nil) }
		}, model.Interrupted, "cancelled", time.Minute, errLockLost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handler := tc.handler
				if handler == nil {
					handler = &modeltest.Server{Behave: func(modeltest.Call) modeltest.Behaviour { return hang }}
				}
				c, stop := bubbleClient(t, handler)
				defer stop()
				ctx := t.Context()
				if tc.context != nil {
					var cancel context.CancelFunc
					ctx, cancel = tc.context(ctx)
					defer cancel()
				}
				start := time.Now()
				sent := time.Duration(-1)
				r := request("a")
				r.Sent = func() { sent = time.Since(start) }
				_, err := c.Complete(ctx, r)
				e := failure(t, err)
				if e.Kind != tc.kind || e.Code != tc.code || !e.Sent || sent != 0 || time.Since(start) != tc.after {
					t.Errorf("Complete = %v after %v, sent %v at %v, want %s, code %s after %v, sent at once",
						err, time.Since(start), e.Sent, sent, tc.kind, tc.code, tc.after)
				}
				if tc.cause != nil && !errors.Is(err, tc.cause) {
					t.Errorf("errors.Is(%v, %v) = false, want true", err, tc.cause)
				}
				if tc.cause == errLockLost && !errors.Is(err, context.Canceled) {
					t.Errorf("errors.Is(%v, context.Canceled) = false, want true", err)
				}
			})
		})
	}
}

func TestClientTLSHandshakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		defer w.Close()
		transport := model.NewTransport(nil)
		transport.DialContext = w.dial
		c, err := model.New(model.Deployment{Endpoint: "https://model.test", Name: "gpt", Key: key}, &model.Options{Transport: transport})
		if err != nil {
			t.Fatalf("New = %v", err)
		}
		silent := make(chan struct{})
		go func() {
			defer close(silent)
			conn, _ := w.Accept()
			_, _ = io.Copy(io.Discard, conn)
		}()
		start := time.Now()
		_, err = c.Complete(t.Context(), request("a"))
		if e := failure(t, err); e.Code != "connect_timeout" || e.Sent || time.Since(start) != 10*time.Second {
			t.Errorf("Complete = %v after %v, sent %v, want connect_timeout after 10s, not sent", err, time.Since(start), e.Sent)
		}
		<-silent
	})
}

// TestClientManyCalls runs a fleet's worth of calls in virtual time: every one is answered, none waits for another's connection.
func TestClientManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &modeltest.Server{Latency: func(int, int) time.Duration { return 30 * time.Second }}
		c, stop := bubbleClient(t, service)
		defer stop()
		start := time.Now()
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() {
				if _, err := c.Complete(t.Context(), request("a")); err != nil {
					t.Errorf("Complete = %v", err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(start); took != 30*time.Second || service.Calls() != 200 {
			t.Errorf("200 calls took %v and were %d, want 30s and 200", took, service.Calls())
		}
	})
}

// roundTrip is a transport that reports nothing of its progress.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newClientOver(t *testing.T, transport roundTrip) *model.Client {
	t.Helper()
	c, err := model.New(model.Deployment{Endpoint: "https://model.test", Name: "gpt", Key: key}, &model.Options{Transport: transport})
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	return c
}

// endsAt calls end when the body has been read.
type endsAt struct {
	io.Reader
	end func()
}

func (b endsAt) Close() error { b.end(); return nil }

func TestClientKeepsAnAnswerThatArrived(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newClientOver(t, func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: endsAt{strings.NewReader(fenced), cancel}}, nil
	})
	if got, err := c.Complete(ctx, request("a")); err != nil || got.Kind != model.Answered {
		t.Errorf("Complete, cancelled as the answer ended = %v, %v, want the answer", got, err)
	}
}

func TestClientDistrustsSilentTransports(t *testing.T) {
	c := newClientOver(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("failed somewhere") })
	_, err := c.Complete(t.Context(), request("a"))
	if e := failure(t, err); !e.Sent || e.Code != "transport" {
		t.Errorf("Complete = %v, sent %v, want code transport, sent", err, e.Sent)
	}
}

func TestClientSentIsNotCalledAfterReturn(t *testing.T) {
	var trace *httptrace.ClientTrace
	c := newClientOver(t, func(r *http.Request) (*http.Response, error) {
		trace = httptrace.ContextClientTrace(r.Context())
		return nil, io.ErrUnexpectedEOF
	})
	r := request("a")
	r.Sent = func() { t.Error("Sent was called after Complete had returned") }
	if _, err := c.Complete(t.Context(), r); err == nil {
		t.Fatal("Complete = nil, want an error")
	}
	trace.WroteRequest(httptrace.WroteRequestInfo{})
}
