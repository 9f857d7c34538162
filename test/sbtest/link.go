package sbtest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"millrace/test/sbtest/internal/engine"
	"millrace/test/sbtest/internal/wire"
)

// kind is what a link is for, seen from the client.
type kind int

const (
	producer kind = iota // sends messages to a queue
	consumer             // receives messages from a queue
	request              // sends requests to $cbs or a $management node
	response             // receives the answers
)

// grant is the credit that sending clients get at once and again at half.
const grant = 1000

// cbsNode is the address of the node that takes tokens.
const cbsNode = "$cbs"

const managementSuffix = "/$management"

// link is one link, named by the client's handle. Fields belong to the
// connection's lock unless they say otherwise.
type link struct {
	ss     *session
	kind   kind
	name   string
	handle uint32
	node   *node  // nil for $cbs
	reply  string // of a response link: its target address

	detached bool
	open     atomic.Bool // counted in the server's totals
	counted  bool        // entity's lock: in node.receivers
	inLine   bool        // entity's lock: in node.waiting
	used     time.Time

	// Towards the client.
	settles  bool // sent settled: receive-and-delete, and answers
	credit   uint32
	count    uint32 // delivery-count
	draining bool
	replies  [][]byte // answers that wait for credit

	// From the client; the reading goroutine's alone.
	taken   int // since credit was granted
	inbound struct {
		open    bool
		id      uint32
		format  uint32
		settled bool
		data    []byte
	}
}

// attach answers a client's attach.
func (ss *session) attach(a *wire.Attach) error {
	c := ss.c
	c.mu.Lock()
	taken := ss.links[a.Handle] != nil
	c.mu.Unlock()
	if taken {
		return ss.fail("amqp:session:handle-in-use", "handle is in use")
	}
	l := &link{ss: ss, name: a.Name, handle: a.Handle, used: time.Now()}
	refusal := l.resolve(a)
	if refusal != nil && refusal.Condition == "" {
		return nil // a fault that leaves the client waiting
	}
	if refusal != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		l.kind, l.node = request, nil
		ss.links[a.Handle] = l
		c.send(ss.channel, &wire.Attach{
			Name: a.Name, Handle: a.Handle, Receiver: !a.Receiver, SendMode: a.SendMode, ReceiveMode: a.ReceiveMode,
		})
		l.detach(refusal)
		c.s.log("attach refused", "conn", c.id, "condition", refusal.Condition)
		return nil
	}
	answer := &wire.Attach{
		Name: a.Name, Handle: a.Handle, Receiver: !a.Receiver, SendMode: a.SendMode, ReceiveMode: a.ReceiveMode,
		Source: a.Source, Target: a.Target,
	}
	if answer.Source == nil {
		answer.Source = &wire.Terminus{Code: wire.CodeSource}
	}
	if answer.Target == nil {
		answer.Target = &wire.Terminus{Code: wire.CodeTarget}
	}
	if !a.Receiver {
		answer.MaxMessageSize = uint64(c.s.MaxMessageSize)
	}
	c.s.totals.links.Add(1)
	c.s.totals.openLinks.Add(1)
	l.open.Store(true)
	c.mu.Lock()
	ss.links[a.Handle] = l
	c.send(ss.channel, answer)
	if !a.Receiver {
		l.credit = grant
		l.sendFlow(false)
	}
	c.mu.Unlock()
	if l.kind == consumer {
		l.node.ent.update(func(time.Time) {
			l.counted = true
			l.node.receivers++
			l.node.attaches++
		})
	}
	return nil
}

// resolve finds out what the link is for, or why it may not be.
func (l *link) resolve(a *wire.Attach) *wire.Error {
	end := a.Target
	if a.Receiver {
		end = a.Source
	}
	if end == nil {
		return &wire.Error{Condition: "amqp:invalid-field", Description: "no address"}
	}
	if end.Code == wire.CodeCoordinator {
		return &wire.Error{Condition: "amqp:not-implemented", Description: "transactions are not supported"}
	}
	path := entityPath(end.Address)
	base, rpc := cutSuffixFold(path, managementSuffix)
	if strings.EqualFold(path, cbsNode) {
		rpc, base = true, ""
	}
	if a.Receiver {
		l.kind, l.settles = consumer, a.SendMode == wire.SendSettled
		if rpc {
			l.kind, l.settles = response, true
			if a.Target != nil {
				l.reply = a.Target.Address
			}
		}
	} else if l.kind = producer; rpc {
		l.kind = request
	}
	if rpc && base == "" {
		return l.claimCBS()
	}
	n, err := l.ss.c.s.lookup(base)
	if err != nil {
		return &wire.Error{
			Condition:   "amqp:not-found",
			Description: fmt.Sprintf("The messaging entity '%s' could not be found.", base),
		}
	}
	l.node = n
	point := OnAttachSender
	if a.Receiver {
		point = OnAttachReceiver
	}
	if rpc {
		return nil
	}
	if l.kind == producer && n == &n.ent.dead {
		return &wire.Error{Condition: "amqp:not-allowed", Description: "messages cannot be sent to a dead-letter queue"}
	}
	if f := l.ss.c.s.faults.strike(point, n.path, ""); f != nil {
		if f.Cut {
			l.ss.c.nc.Close()
		}
		return &wire.Error{Condition: f.Condition, Description: f.Description}
	}
	return nil
}

// claimCBS allows one pair of links to $cbs per connection, as the service does.
func (l *link) claimCBS() *wire.Error {
	c := l.ss.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ss := range c.sessions {
		for _, other := range ss.links {
			if other.node == nil && other.kind == l.kind && !other.detached {
				return &wire.Error{Condition: "amqp:not-allowed", Description: "$cbs node has already been opened."}
			}
		}
	}
	return nil
}

// detach ends the link from the broker's side; frames for its handle are
// ignored until the client detaches too. The caller holds the connection's
// lock and calls gone after it let go.
func (l *link) detach(e *wire.Error) {
	l.detached = true
	l.ss.c.send(l.ss.channel, &wire.Detach{Handle: l.handle, Closed: true, Error: e})
}

// gone takes the link out of its node's books.
func (l *link) gone() {
	l.uncount()
	if l.kind != consumer || l.node == nil {
		return
	}
	l.node.ent.update(func(time.Time) { l.node.leave(l) })
}

func (l *link) uncount() {
	if l.open.Swap(false) {
		l.ss.c.s.totals.openLinks.Add(-1)
	}
}

// leave forgets a consumer. The caller holds the entity's lock.
func (n *node) leave(l *link) {
	if l.counted {
		l.counted = false
		n.receivers--
	}
	if l.inLine {
		l.inLine = false
		n.waiting = slices.DeleteFunc(n.waiting, func(o *link) bool { return o == l })
	}
}

// peerDetached answers a client's detach, unless it is itself an answer.
func (ss *session) peerDetached(d *wire.Detach) error {
	c := ss.c
	c.mu.Lock()
	l := ss.links[d.Handle]
	if l == nil {
		c.mu.Unlock()
		return ss.fail("amqp:session:unattached-handle", "detach for a handle that is not attached")
	}
	delete(ss.links, d.Handle)
	first := !l.detached
	l.detached = true
	if first {
		c.send(ss.channel, &wire.Detach{Handle: d.Handle, Closed: true})
	}
	c.mu.Unlock()
	if first {
		l.gone()
	}
	return nil
}

// detachWhere detaches the matching links with an error and returns how many.
func (c *conn) detachWhere(condition, description string, match func(*link) bool) int {
	c.mu.Lock()
	var hit []*link
	for _, ss := range c.sessions {
		for _, l := range ss.links {
			if !l.detached && match(l) {
				l.detach(&wire.Error{Condition: condition, Description: description})
				hit = append(hit, l)
			}
		}
	}
	c.mu.Unlock()
	for _, l := range hit {
		l.gone()
	}
	return len(hit)
}

// dropIdle detaches links without traffic since then. Those for tokens and
// management live and die with the link they serve.
func (c *conn) dropIdle(since time.Time) {
	c.detachWhere("amqp:link:detach-forced", "The link was closed because it was idle.", func(l *link) bool {
		return (l.kind == producer || l.kind == consumer) && l.used.Before(since)
	})
}

// takeFlow takes what the client says about this link and reports whether it
// wants to be drained. The caller holds the connection's lock.
func (l *link) takeFlow(f *wire.Flow) (drain bool) {
	if l.detached || l.kind == producer || l.kind == request {
		return false
	}
	l.used = time.Now()
	// Part 2.6.7: what the client counts from may lag behind what was sent.
	l.credit = f.DeliveryCount + f.LinkCredit - l.count
	if int32(l.credit) < 0 {
		l.credit = 0
	}
	if l.kind == response {
		l.sendReplies()
	}
	return f.Drain
}

// drained gives the unused credit back once nothing is under way any more
// (part 2.6.7). The caller holds the connection's lock.
func (l *link) drained() {
	if !l.draining || l.detached || len(l.ss.pending) > 0 {
		return
	}
	l.draining = false
	l.count += l.credit
	l.credit = 0
	l.sendFlow(true)
}

// sendFlow tells the client the state of the link. The caller holds the
// connection's lock.
func (l *link) sendFlow(drain bool) {
	w := l.ss.state()
	w.Handle, w.HasHandle = l.handle, true
	w.DeliveryCount, w.HasDeliveryCount = l.count, true
	w.LinkCredit, w.HasLinkCredit = l.credit, true
	w.Drain = drain
	l.ss.c.send(l.ss.channel, &w)
}

// offer gives the consumer one message if it can take one. It reports whether
// it could; if not, whatever held it back puts it in line again: a flow of the
// client, a settlement, or the writer. The caller holds the entity's lock and
// knows that the queue is not empty.
func (l *link) offer(t time.Time) bool {
	ss, c := l.ss, l.ss.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case l.detached, c.ended, l.credit == 0, ss.window == 0, len(ss.pending) > 0:
		return false
	case !l.settles && len(ss.unsettled) >= maxUnsettled:
		return false
	case len(c.out) >= outLimit:
		c.congested = true
		return false
	}
	if f := c.s.faults.strike(OnDeliver, l.node.path, ""); f != nil {
		switch {
		case f.Cut:
			c.nc.Close()
			return false
		case f.Condition == "":
			return false
		}
		l.detach(&wire.Error{Condition: f.Condition, Description: f.Description})
		l.uncount()
		if l.counted {
			l.counted = false
			l.node.receivers--
		}
		return false
	}
	take := l.node.queue.Take
	if l.settles {
		take = l.node.queue.TakeAndDelete
	}
	e := take(t)
	if e == nil {
		return true
	}
	l.node.seen.add(e)
	l.deliver(e, t)
	return true
}

// deliver writes a message to the client. The caller holds the connection's lock.
func (l *link) deliver(e *engine.Entry, t time.Time) {
	ss, c := l.ss, l.ss.c
	id := ss.nextDelivery
	ss.nextDelivery++
	l.credit--
	l.count++
	l.used = t
	tag := guid(e.LockToken)
	first := wire.Transfer{
		Handle: l.handle, DeliveryID: id, HasDeliveryID: true, Tag: tag[:], HasFormat: true, Settled: l.settles,
	}
	if !l.settles {
		ss.unsettled[id] = delivery{l, e.LockToken}
	}
	if e.Message.Size()+4*frameRoom > c.maxFrame {
		ss.post(l, first, appendEntry(nil, e, l.node, onDelivery))
		return
	}
	c.push(func(b []byte) []byte {
		b, start := wire.BeginFrame(b, wire.FrameAMQP, ss.channel)
		body := len(b)
		b = first.Append(b)
		head := len(b)
		b = appendEntry(b, e, l.node, onDelivery)
		if len(b)-start > c.maxFrame { // annotations were larger than reckoned
			ss.pending = append(ss.pending, outgoing{link: l, first: first, payload: slices.Clone(b[head:])})
			return b[:body-8]
		}
		ss.window--
		ss.nextOutgoing++
		return wire.FinishFrame(b, start)
	})
	ss.flush()
}

// guid is a lock token in the byte order of a .NET Guid, which is what a
// delivery tag holds.
func guid(u wire.UUID) [16]byte {
	g := [16]byte(u)
	g[0], g[1], g[2], g[3] = u[3], u[2], u[1], u[0]
	g[4], g[5] = u[5], u[4]
	g[6], g[7] = u[7], u[6]
	return g
}
