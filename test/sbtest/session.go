package sbtest

import (
	"math"

	"millrace/test/sbtest/internal/wire"
)

// incomingWindow is how many transfers the broker takes before it opens its
// window again; it does so at half.
const incomingWindow = 5000

// maxUnsettled is how many unsettled deliveries a session may have; the service
// stops delivering there.
const maxUnsettled = 5000

// session is one AMQP session. The broker uses the client's channel and handle
// numbers for its own direction. Fields belong to the connection's lock, but
// for ending and the incoming counters, which only the reading goroutine uses.
type session struct {
	c       *conn
	channel uint16
	links   map[uint32]*link
	ending  bool // the broker has sent end

	nextIncoming uint32
	incomingLeft int

	nextOutgoing uint32
	window       uint32 // transfers the peer will still take
	nextDelivery uint32
	pending      []outgoing // what did not fit a frame or the window
	unsettled    map[uint32]delivery
}

// delivery is a message that the client holds.
type delivery struct {
	link  *link
	token wire.UUID
}

// outgoing is a delivery under way, from payload[sent:] on.
type outgoing struct {
	link    *link
	first   wire.Transfer
	payload []byte
	sent    int
}

func (c *conn) begin(channel uint16, f wire.Fields) error {
	var b wire.Begin
	if err := b.Unmarshal(f); err != nil {
		return err
	}
	if channel > channelMax {
		return &wire.Error{Condition: "amqp:connection:framing-error", Description: "channel above channel-max"}
	}
	c.s.totals.sessions.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[channel] != nil {
		return &wire.Error{Condition: "amqp:not-allowed", Description: "channel is in use"}
	}
	c.sessions[channel] = &session{
		c: c, channel: channel,
		links:        make(map[uint32]*link),
		nextIncoming: b.NextOutgoingID, incomingLeft: incomingWindow,
		window:    b.IncomingWindow,
		unsettled: make(map[uint32]delivery),
	}
	c.send(channel, &wire.Begin{
		RemoteChannel: channel, HasRemote: true,
		IncomingWindow: incomingWindow, OutgoingWindow: math.MaxInt32, HandleMax: 255,
	})
	return nil
}

// fail ends the session from the broker's side.
func (ss *session) fail(condition, description string) error {
	ss.ending = true
	ss.end()
	ss.c.mu.Lock()
	defer ss.c.mu.Unlock()
	ss.c.send(ss.channel, &wire.End{Error: &wire.Error{Condition: condition, Description: description}})
	return nil
}

// end lets go of the links; the caller takes care of the frames. Locks stay.
func (ss *session) end() {
	ss.c.mu.Lock()
	all := make([]*link, 0, len(ss.links))
	for _, l := range ss.links {
		all = append(all, l)
		l.detached = true
	}
	clear(ss.links)
	clear(ss.unsettled)
	ss.pending = nil
	ss.c.mu.Unlock()
	for _, l := range all {
		l.gone()
	}
}

// state fills in the session fields of a flow.
func (ss *session) state() wire.Flow {
	return wire.Flow{
		NextIncomingID: ss.nextIncoming, HasNextIncomingID: true, IncomingWindow: uint32(ss.incomingLeft),
		NextOutgoingID: ss.nextOutgoing, OutgoingWindow: math.MaxInt32,
	}
}

// flow takes what the peer says about its window and one of its links.
func (ss *session) flow(f *wire.Flow) error {
	c := ss.c
	var ready []*link
	c.mu.Lock()
	had := ss.window > 0 && len(ss.pending) == 0
	// Part 2.5.6; before the first begin reaches the peer its id is the initial 0.
	ss.window = f.NextIncomingID + f.IncomingWindow - ss.nextOutgoing
	if int32(ss.window) < 0 {
		ss.window = 0
	}
	ss.flush()
	if !had && ss.window > 0 {
		ready = ss.consumers()
	}
	if !f.HasHandle {
		if f.Echo {
			w := ss.state()
			c.send(ss.channel, &w)
		}
		c.mu.Unlock()
		offerAll(ready)
		return nil
	}
	l := ss.links[f.Handle]
	if l == nil {
		c.mu.Unlock()
		return ss.fail("amqp:session:unattached-handle", "flow for a handle that is not attached")
	}
	drain := l.takeFlow(f)
	if l.kind == consumer && !l.detached && l.credit > 0 {
		ready = append(ready, l)
	}
	echo := f.Echo && !drain && !l.detached
	if echo {
		l.sendFlow(false)
	}
	c.mu.Unlock()
	offerAll(ready)
	if drain {
		c.mu.Lock()
		l.draining = true
		l.drained()
		c.mu.Unlock()
	}
	return nil
}

func (ss *session) consumers() []*link {
	var all []*link
	for _, l := range ss.links {
		if l.kind == consumer && !l.detached {
			all = append(all, l)
		}
	}
	return all
}

func offerAll(links []*link) {
	for _, l := range links {
		l.node.offerTo(l)
	}
}

// post sends a delivery, or as much of it as the peer's window allows, and the
// rest when the window opens. The caller holds the connection's lock.
func (ss *session) post(l *link, first wire.Transfer, payload []byte) {
	ss.pending = append(ss.pending, outgoing{link: l, first: first, payload: payload})
	ss.flush()
}

// frameRoom is what a frame needs beside its payload: header and performative.
const frameRoom = 96

// flush sends what is pending as far as the peer's window allows, every frame
// counting (part 2.5.6). The caller holds the connection's lock.
func (ss *session) flush() {
	c := ss.c
	for len(ss.pending) > 0 && ss.window > 0 {
		o := &ss.pending[0]
		if o.link.detached {
			ss.pending = ss.pending[1:]
			continue
		}
		t := wire.Transfer{Handle: o.link.handle}
		if o.sent == 0 {
			t = o.first
		}
		chunk := o.payload[o.sent:]
		if room := c.maxFrame - frameRoom; len(chunk) > room {
			chunk, t.More = chunk[:room], true
		}
		c.push(func(b []byte) []byte {
			b, start := wire.BeginFrame(b, wire.FrameAMQP, ss.channel)
			return wire.FinishFrame(append(t.Append(b), chunk...), start)
		})
		o.sent += len(chunk)
		ss.window--
		ss.nextOutgoing++
		if !t.More {
			link := o.link
			ss.pending[0] = outgoing{}
			ss.pending = ss.pending[1:]
			link.drained()
		}
	}
}

// transfer takes one frame of a message from the client.
func (ss *session) transfer(t *wire.Transfer, payload []byte) error {
	c := ss.c
	ss.nextIncoming++
	ss.incomingLeft--
	c.mu.Lock()
	if ss.incomingLeft <= incomingWindow/2 {
		ss.incomingLeft = incomingWindow
		w := ss.state()
		c.send(ss.channel, &w)
	}
	l := ss.links[t.Handle]
	detached := l != nil && l.detached
	c.mu.Unlock()
	switch {
	case l == nil:
		return ss.fail("amqp:session:unattached-handle", "transfer for a handle that is not attached")
	case detached:
		return nil
	case l.kind != producer && l.kind != request:
		return ss.fail("amqp:not-allowed", "transfer on a receiving link")
	}
	return l.take(t, payload)
}

// disposition settles what the client received.
func (ss *session) disposition(d *wire.Disposition) error {
	if !d.Receiver {
		return nil // the client settles what it sent; the broker keeps nothing of that
	}
	c := ss.c
	span := d.Last - d.First
	if d.Last == d.First {
		ss.settle(d.First, d)
		return nil
	}
	if int32(span) < 0 {
		return ss.fail("amqp:session:errant-link", "disposition with last before first")
	}
	c.mu.Lock()
	if int(span) >= len(ss.unsettled) { // a wide range: look at what there is instead
		var ids []uint32
		for id := range ss.unsettled {
			if id-d.First <= span {
				ids = append(ids, id)
			}
		}
		c.mu.Unlock()
		for _, id := range sorted(ids, d.First) {
			ss.settle(id, d)
		}
		return nil
	}
	c.mu.Unlock()
	for i := range span + 1 {
		ss.settle(d.First+i, d)
	}
	return nil
}
