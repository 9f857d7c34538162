package blobtest_test

import (
	"net"
	"testing"
	"time"

	"millrace/test/blobtest"
)

// TestServerCloseDoesNotWaitForUnusedConnections: clients open connections ahead of need.
func TestServerCloseDoesNotWaitForUnusedConnections(t *testing.T) {
	s := &blobtest.Server{}
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("Close() took %v, want no wait for a connection without a request", took)
	}
}
