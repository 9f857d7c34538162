package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Pool is the few AMQP connections that all receivers of a process share. A namespace allows 5,000 connections, so a
// fleet must not open one per task ("Service Bus quotas", table "Messaging quotas").
type Pool struct {
	clients []*azservicebus.Client
}

// NewPool makes size clients with open; each owns one connection, dialled when its first link is needed.
func NewPool(size int, open func() (*azservicebus.Client, error)) (*Pool, error) {
	if size < 1 {
		return nil, fmt.Errorf("pool of %d connections: at least 1 is needed", size)
	}
	p := &Pool{clients: make([]*azservicebus.Client, size)}
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
func (p *Pool) client(i int) *azservicebus.Client { return p.clients[i%len(p.clients)] }

// Close closes every connection; links that are still open are closed with it.
func (p *Pool) Close(ctx context.Context) error {
	var errs []error
	for _, c := range p.clients {
		errs = append(errs, c.Close(ctx))
	}
	return errors.Join(errs...)
}
