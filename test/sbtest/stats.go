package sbtest

import (
	"context"

	"millrace/test/sbtest/internal/engine"
)

// Stats is a queue at one moment: what it holds, and what happened to it since
// it was made.
type Stats struct {
	// Now. What the service calls ActiveMessageCount is Active + Locked.
	Active       int // waiting to be received
	Locked       int // held by somebody, deferred ones included
	Scheduled    int
	Deferred     int
	DeadLettered int // in the dead-letter queue of this queue
	Receivers    int // receiver links attached
	Waiting      int // receiver links in line for a message

	// Ever.
	Enqueued     int // accepted; a scheduled message when its time came
	Deliveries   int
	Completed    int
	Abandoned    int
	Released     int
	Deferrals    int
	Renewals     int
	LocksExpired int
	Dropped      int // outlived their TTL and were dropped
	Buried       int // moved to the dead-letter queue
	Attaches     int // receiver links
}

// Totals counts across the server.
type Totals struct {
	Connections, OpenConnections int
	Sessions                     int
	Links, OpenLinks             int // those for tokens and management included
	Frames                       int // received
}

// Stats returns the counts of a queue, or of a dead-letter queue by its full
// name ("q/$DeadLetterQueue"). A queue that does not exist has zero counts.
func (s *Server) Stats(queue string) Stats {
	n, err := s.lookup(queue)
	if err != nil {
		return Stats{}
	}
	n.ent.mu.Lock()
	defer n.ent.mu.Unlock()
	return n.stats()
}

func (n *node) stats() Stats {
	e := n.queue.Stats()
	st := Stats{
		Active: e.Active, Locked: e.Locked, Scheduled: e.Scheduled, Deferred: e.Deferred,
		Receivers: n.receivers, Waiting: len(n.waiting), Attaches: n.attaches,
		Enqueued: e.Enqueued, Deliveries: e.Deliveries, Completed: e.Completed, Abandoned: e.Abandoned,
		Released: e.Released, Deferrals: e.Deferrals, Renewals: e.Renewals, LocksExpired: e.LocksExpired,
		Dropped: e.Dropped, Buried: e.DeadLettered,
	}
	if n == &n.ent.main {
		d := n.ent.dead.queue.Stats()
		st.DeadLettered = d.Active + d.Locked
	}
	return st
}

// Totals returns the counts of the server.
func (s *Server) Totals() Totals {
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	return Totals{
		Connections: int(s.totals.conns.Load()), OpenConnections: open,
		Sessions: int(s.totals.sessions.Load()),
		Links:    int(s.totals.links.Load()), OpenLinks: int(s.totals.openLinks.Load()),
		Frames: int(s.totals.frames.Load()),
	}
}

// Await blocks until cond holds for the queue. It looks again after every
// change of the queue and never polls, so it may be used inside a bubble. It
// returns the cause of ctx's end, [ErrClosed] or [ErrNoQueue] otherwise. cond
// may call methods of the server.
func (s *Server) Await(ctx context.Context, queue string, cond func(Stats) bool) error {
	n, err := s.lookup(queue)
	if err != nil {
		return err
	}
	return n.ent.await(ctx, func() bool {
		n.ent.mu.Lock()
		st := n.stats()
		n.ent.mu.Unlock()
		return cond(st)
	})
}

// AwaitEmpty blocks until the queue has no active, locked, scheduled or deferred
// message; dead letters do not count.
func (s *Server) AwaitEmpty(ctx context.Context, queue string) error {
	return s.Await(ctx, queue, func(st Stats) bool {
		return st.Active+st.Locked+st.Scheduled+st.Deferred == 0
	})
}

// DeliveriesOf is how often messages with this id were handed out. It is kept
// for the last 131,072 ids of a queue.
func (s *Server) DeliveriesOf(queue, messageID string) int {
	n, err := s.lookup(queue)
	if err != nil {
		return 0
	}
	n.ent.mu.Lock()
	defer n.ent.mu.Unlock()
	return n.seen.count[messageID]
}

// deliveryCounts remembers a bounded number of message ids, oldest first out.
type deliveryCounts struct {
	count map[string]int
	order []string
	next  int
}

const deliveryIDs = 1 << 17

func (d *deliveryCounts) add(e *engine.Entry) {
	if d.count == nil {
		d.count = make(map[string]int)
	}
	d.count[e.ID]++
	if d.count[e.ID] > 1 {
		return
	}
	if len(d.order) < deliveryIDs {
		d.order = append(d.order, e.ID)
		return
	}
	delete(d.count, d.order[d.next])
	d.order[d.next] = e.ID
	d.next = (d.next + 1) % deliveryIDs
}
