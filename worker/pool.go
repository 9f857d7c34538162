package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Pool is the few AMQP connections that all receivers of a process share. A namespace allows 5,000 connections, so a
// fleet must not open one per task ("Service Bus quotas", table "Messaging quotas").
type Pool struct {
	open func() (*azservicebus.Client, error)

	mu      sync.Mutex
	clients []*azservicebus.Client
	closed  bool
}

// NewPool makes size clients with open; each owns one connection, dialled when its first link is needed. open is called
// again when a client has to be replaced, possibly from several goroutines.
func NewPool(size int, open func() (*azservicebus.Client, error)) (*Pool, error) {
	if size < 1 {
		return nil, fmt.Errorf("pool of %d connections: at least 1 is needed", size)
	}
	p := &Pool{open: open, clients: make([]*azservicebus.Client, size)}
	for i := range p.clients {
		c, err := open()
		if err != nil {
			return nil, fmt.Errorf("open service bus client: %w", err)
		}
		p.clients[i] = c
	}
	return p, nil
}

// client returns the connection that link number i uses.
func (p *Pool) client(i int) *azservicebus.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients[i%len(p.clients)]
}

// swap puts fresh in the place of stale, the client of link number i, and reports whether it did. The one that is not
// in the pool then is closed, with whatever is left on it.
func (p *Pool) swap(ctx context.Context, i int, stale, fresh *azservicebus.Client) (bool, error) {
	p.mu.Lock()
	at := i % len(p.clients)
	swapped := !p.closed && p.clients[at] == stale
	if swapped {
		p.clients[at] = fresh
	} else {
		stale = fresh
	}
	p.mu.Unlock()
	return swapped, stale.Close(ctx)
}

// Close closes every connection; links that are still open are closed with it.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	clients := p.clients
	p.mu.Unlock()
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Close(ctx))
	}
	return errors.Join(errs...)
}
