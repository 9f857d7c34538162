package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
)

var errCut = errors.New("network cut")

// cable is the whole network of one worker: every connection to the broker and every request to Blob and to the model
// go through it, so that it can be cut.
type cable struct {
	http    *http.Transport
	results string      // path of the results container
	written func() bool // told of each result this worker has created before the worker hears of it; true cuts

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newCable(results string, written func() bool) *cable {
	c := &cable{results: results, written: written, conns: make(map[net.Conn]struct{})}
	c.http = &http.Transport{DialContext: c.dial, MaxIdleConnsPerHost: 64}
	return c
}

// dial connects, unless the cable is cut.
func (c *cable) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.isCut() {
		return nil, errCut
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut { // while this was dialling
		conn.Close()
		return nil, errCut
	}
	tracked := &trackedConn{Conn: conn, cable: c}
	c.conns[tracked] = struct{}{}
	return tracked, nil
}

// RoundTrip implements [http.RoundTripper].
func (c *cable) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.http.RoundTrip(r)
	if err == nil && r.Method == http.MethodPut && resp.StatusCode == http.StatusCreated &&
		strings.HasPrefix(r.URL.Path, c.results) && c.written() {
		resp.Body.Close()
		c.sever()
		return nil, errCut
	}
	return resp, err
}

// sever breaks every connection and lets no new one come about.
func (c *cable) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for conn := range c.conns {
		conn.(*trackedConn).Conn.Close()
	}
}

func (c *cable) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// close ends idle connections of a worker that has stopped.
func (c *cable) close() { c.http.CloseIdleConnections() }

type trackedConn struct {
	net.Conn
	cable *cable
}

func (t *trackedConn) Close() error {
	t.cable.mu.Lock()
	delete(t.cable.conns, t)
	t.cable.mu.Unlock()
	return t.Conn.Close()
}
