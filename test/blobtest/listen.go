package blobtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// closeGrace is how long Close waits for requests before it breaks their connections.
const closeGrace = 5 * time.Second

// listening is a Server's own listener and HTTP server.
type listening struct {
	http   *http.Server
	closed chan struct{} // closed when Close begins: hanging requests end
	done   chan error    // Serve's result
	once   sync.Once
	err    error // Close's result

	mu     sync.Mutex
	unused map[net.Conn]struct{} // connections that no request has come over
}

// note keeps the books of unused connections. http.Server waits five seconds for a request on each before it stops.
func (l *listening) note(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state != http.StateNew {
		delete(l.unused, c)
		return
	}
	select {
	case <-l.closed:
		c.Close()
	default:
		l.unused[c] = struct{}{}
	}
}

// dropUnused breaks the unused connections: clients hold some that they may never need.
func (l *listening) dropUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.unused {
		c.Close()
	}
}

// Listen serves on a loopback address, such as "127.0.0.1:0", and returns where. The keys of an emulator are public,
// so any other address is refused; use an http.Server of your own with the Server as its handler if it must be.
// With a folder it is opened first. Close ends it.
func (s *Server) Listen(addr string) (net.Addr, error) {
	if err := loopback(addr); err != nil {
		return nil, err
	}
	if err := s.Open(); err != nil {
		return nil, fmt.Errorf("open folder: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return nil, errors.New("listen: already listening")
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l := &listening{
		http: &http.Server{
			Handler:           s,
			ReadHeaderTimeout: 30 * time.Second,
			ErrorLog:          log.New(io.Discard, "", 0), // clients that go away are the rule in tests
		},
		closed: make(chan struct{}),
		done:   make(chan error, 1),
		unused: make(map[net.Conn]struct{}),
	}
	l.http.ConnState = l.note
	s.listener = l
	go func() { l.done <- l.http.Serve(ln) }()
	return ln.Addr(), nil
}

func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("listen: %q is not a loopback address", addr)
	}
	return nil
}

// Close ends what Listen began: no new connections, requests held by a fault are broken off, others have 5 seconds to
// finish. After that their connections are broken and the error names them. Close without Listen does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	l := s.listener
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	l.once.Do(func() { l.err = s.shut(l) })
	return l.err
}

func (s *Server) shut(l *listening) error {
	close(l.closed)
	l.dropUnused()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := l.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.hanging()
		_ = l.http.Close()
	}
	if served := <-l.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = nil
	return err
}

// hanging names the requests in flight.
func (s *Server) hanging() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var who []string
	for fl := range s.flying {
		who = append(who, fmt.Sprintf("%s %s/%s for %s", fl.target.operation, fl.target.container, fl.target.blob,
			time.Since(fl.since).Round(time.Millisecond)))
	}
	slices.Sort(who)
	return fmt.Errorf("close: %d requests hang after %s: %s", len(who), closeGrace, strings.Join(who, "; "))
}

// closing is closed when Close begins; nil, which never is ready, if the Server does not listen by itself.
func (s *Server) closing() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.closed
}

// ConnectionString is what azblob's NewClientFromConnectionString takes to reach the Server, path style, at baseURL
// (such as "http://127.0.0.1:10000"). The account is DevAccount if there is one, else the first by name; the string
// is empty if there is no account.
func (s *Server) ConnectionString(baseURL string) string {
	account := DevAccount
	if _, ok := s.key(account); !ok && len(s.Accounts) > 0 {
		account = slices.Min(slices.Collect(maps.Keys(s.Accounts)))
	}
	return s.ConnectionStringFor(baseURL, account)
}

// ConnectionStringFor is ConnectionString for one account of several; empty if there is no such account.
func (s *Server) ConnectionStringFor(baseURL, account string) string {
	key, ok := s.key(account)
	if !ok {
		return ""
	}
	scheme, _, _ := strings.Cut(baseURL, "://")
	return "DefaultEndpointsProtocol=" + scheme + ";AccountName=" + account + ";AccountKey=" + key +
		";BlobEndpoint=" + strings.TrimSuffix(baseURL, "/") + "/" + account + ";"
}
