package sbtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"millrace/test/sbtest/internal/engine"
	"millrace/test/sbtest/internal/wire"
)

// QueueOptions are the settings of one queue. A nil pointer means all defaults.
type QueueOptions struct {
	// LockDuration is how long a received message stays locked.
	// Default: the server's.
	LockDuration time.Duration
	// MaxDeliveryCount is how many deliveries may fail. Default: the server's.
	MaxDeliveryCount int
	// DefaultTTL is how long a message lives that does not itself say less.
	// Default: 0, for ever.
	DefaultTTL time.Duration
	// DeadLetterOnExpiry moves messages that outlived their TTL to the
	// dead-letter queue instead of dropping them. Default: false.
	DeadLetterOnExpiry bool
}

const deadLetterSuffix = "/$DeadLetterQueue"

// entity is one queue and its dead-letter queue under one lock.
type entity struct {
	s    *Server
	name string

	mu      sync.Mutex
	main    node
	dead    node
	changed chan struct{} // closed at the next change; nil if nobody waits
}

// node is what can be addressed: a queue or its dead-letter queue. Its fields
// belong to the entity's lock.
type node struct {
	ent       *entity
	path      string
	queue     *engine.Queue
	waiting   []*link // consumers that may have credit, in turn
	attaches  int
	receivers int
	seen      deliveryCounts
}

// CreateQueue makes a queue. Names are compared without case; an existing name
// is [ErrExists].
func (s *Server) CreateQueue(name string, o *QueueOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		return err
	}
	name = strings.Trim(name, "/")
	if name == "" || strings.Contains(name, "$") {
		return fmt.Errorf("create queue %q: invalid name", name)
	}
	if s.entities[strings.ToLower(name)] != nil {
		return fmt.Errorf("create queue %q: %w", name, ErrExists)
	}
	s.create(name, o)
	return nil
}

// create adds a queue. The caller holds s.mu.
func (s *Server) create(name string, o *QueueOptions) *entity {
	if o == nil {
		o = &QueueOptions{}
	}
	cfg := engine.Config{
		Name: name, LockDuration: o.LockDuration, MaxDeliveries: o.MaxDeliveryCount,
		DefaultTTL: o.DefaultTTL, DeadLetterOnExpiry: o.DeadLetterOnExpiry,
	}
	if cfg.LockDuration <= 0 {
		cfg.LockDuration = s.LockDuration
	}
	if cfg.MaxDeliveries <= 0 {
		cfg.MaxDeliveries = s.MaxDeliveryCount
	}
	cfg.Dead = engine.New(engine.Config{Name: name + deadLetterSuffix, LockDuration: cfg.LockDuration})
	e := &entity{s: s, name: name}
	e.main = node{ent: e, path: name, queue: engine.New(cfg)}
	e.dead = node{ent: e, path: name + deadLetterSuffix, queue: cfg.Dead}
	s.entities[strings.ToLower(name)] = e
	return e
}

// lookup finds the node of an address: a name or URL of a queue, with or
// without the suffix of its dead-letter queue. It still finds what there was
// when the server is closed.
func (s *Server) lookup(address string) (*node, error) {
	name := entityPath(address)
	base, dead := cutSuffixFold(name, deadLetterSuffix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.start()
	}
	e := s.entities[strings.ToLower(base)]
	if e == nil {
		if !s.AutoCreate || s.closed || base == "" || strings.Contains(base, "$") {
			return nil, fmt.Errorf("queue %q: %w", name, ErrNoQueue)
		}
		e = s.create(base, nil)
	}
	if dead {
		return &e.dead, nil
	}
	return &e.main, nil
}

// entityPath strips scheme, host and outer slashes from an address.
func entityPath(address string) string {
	if _, rest, ok := strings.Cut(address, "://"); ok {
		_, address, _ = strings.Cut(rest, "/")
	}
	return strings.Trim(address, "/")
}

func cutSuffixFold(s, suffix string) (string, bool) {
	if at := len(s) - len(suffix); at >= 0 && strings.EqualFold(s[at:], suffix) {
		return s[:at], true
	}
	return s, false
}

// update runs f under the entity's lock and then lets follow what follows:
// messages go to consumers, waiters wake, the clock learns the next time.
func (e *entity) update(f func(t time.Time)) {
	e.mu.Lock()
	t := time.Now()
	f(t)
	e.main.queue.Advance(t)
	e.main.dispatch(t)
	e.dead.queue.Advance(t)
	e.dead.dispatch(t)
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
	next, ok := e.main.queue.Next()
	if d, has := e.dead.queue.Next(); has && (!ok || d.Before(next)) {
		next, ok = d, true
	}
	e.mu.Unlock()
	if ok {
		e.s.clock.at(next)
	}
}

// await blocks until cond holds, waking at every change.
func (e *entity) await(ctx context.Context, cond func() bool) error {
	for {
		e.mu.Lock()
		if e.changed == nil {
			e.changed = make(chan struct{})
		}
		changed := e.changed
		e.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-e.s.done:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// dispatch hands messages to the waiting consumers, one each in turn.
func (n *node) dispatch(t time.Time) {
	for len(n.waiting) > 0 && n.queue.Ready() > 0 {
		l := n.waiting[0]
		n.waiting = n.waiting[1:]
		if l.offer(t) {
			n.waiting = append(n.waiting, l)
			continue
		}
		l.inLine = false
	}
}

// offerTo puts a consumer in line. The caller is not under any lock.
func (n *node) offerTo(l *link) {
	n.ent.update(func(time.Time) {
		if !l.inLine {
			l.inLine = true
			n.waiting = append(n.waiting, l)
		}
	})
}

// enqueue stores messages that arrived together.
func (n *node) enqueue(msgs []*wire.Message) (seqs []int64) {
	n.ent.update(func(t time.Time) {
		for _, m := range msgs {
			if m.ID() == "" {
				m.SetID(newID())
			}
			seqs = append(seqs, n.queue.Enqueue(t, m).Seq)
		}
	})
	return seqs
}
