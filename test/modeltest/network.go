package modeltest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// network is the part of a Server that listens. The zero value is not listening.
type network struct {
	mu     sync.Mutex
	http   *http.Server
	serves sync.WaitGroup
}

// Listen serves plain HTTP on a TCP address such as "127.0.0.1:0" until Close, and
// returns the address that was bound. It may be called for several addresses.
func (s *Server) Listen(addr string) (net.Addr, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for the model server: %w", err)
	}
	s.ServeOn(l)
	return l.Addr(), nil
}

// ServeOn serves plain HTTP on a listener, such as one in memory, until Close. It
// does not wait: the goroutine it starts is joined by Close, which closes l.
func (s *Server) ServeOn(l net.Listener) {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.network.http == nil {
		s.network.http = &http.Server{Handler: s}
	}
	server := s.network.http
	s.network.serves.Go(func() {
		// Serve always ends with an error: that Close was called, or that the
		// listener broke, after which clients see refused connections.
		_ = server.Serve(l)
	})
}

// Close stops listening, breaks all connections and returns when every handler has
// returned. Closing again, or a server that never listened, is not an error.
// Afterwards the server may listen anew; what it counted stays.
func (s *Server) Close() error {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.network.http == nil {
		return nil
	}
	err := s.network.http.Close()
	s.network.serves.Wait()
	s.network.http = nil
	// Every handler's context ended with its connection, so this is soon.
	_ = s.await(context.Background(), func() bool { return s.active == 0 })
	if err != nil {
		return fmt.Errorf("close the model server: %w", err)
	}
	return nil
}
