package pipe

import (
	"context"
	"net"
	"sync"
)

// Listener accepts connections made with its Dial. The zero value works.
type Listener struct {
	// Latency is the one-way delay of what connections carry. Default: none.
	Latency Latency

	// Name is what Addr says, such as a host with a port. Default: "pipe".
	Name string

	once    sync.Once
	waiting chan net.Conn
	closed  chan struct{}
	end     sync.Once
}

func (l *Listener) init() {
	l.once.Do(func() { l.waiting, l.closed = make(chan net.Conn), make(chan struct{}) })
}

// Dial connects to the listener; it waits until the connection is accepted, ctx ends or the listener is closed.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	l.init()
	client, server := New(l.Latency)
	select {
	case l.waiting <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	}
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	l.init()
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close stops accepting; connections that exist live on.
func (l *Listener) Close() error {
	l.init()
	l.end.Do(func() { close(l.closed) })
	return nil
}

// Addr is the listener's name.
func (l *Listener) Addr() net.Addr { return addr(l.Name) }
