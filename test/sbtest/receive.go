package sbtest

import (
	"time"

	"millrace/test/sbtest/internal/wire"
)

// take gathers the frames of one message and hands it on when it is whole.
func (l *link) take(t *wire.Transfer, payload []byte) error {
	in := &l.inbound
	if !in.open {
		in.open, in.id, in.format, in.settled = true, t.DeliveryID, t.Format, t.Settled
		in.data = make([]byte, 0, len(payload))
	}
	in.settled = in.settled || t.Settled
	if t.Aborted {
		in.open, in.data = false, nil
		l.spend()
		return nil
	}
	if int64(len(in.data)+len(payload)) > l.ss.c.s.MaxMessageSize {
		in.open, in.data = false, nil
		c := l.ss.c
		c.mu.Lock()
		l.detach(&wire.Error{
			Condition:   "amqp:link:message-size-exceeded",
			Description: "The received message is larger than the limit of the link.",
		})
		c.mu.Unlock()
		l.gone()
		return nil
	}
	in.data = append(in.data, payload...)
	if t.More {
		return nil
	}
	data := in.data
	in.open, in.data = false, nil
	if l.kind == request {
		l.serveRequest(data)
		l.accept(in.id, in.settled, nil)
		return nil
	}
	l.store(data)
	return nil
}

// store puts what a client sent into the queue and tells it the outcome.
func (l *link) store(data []byte) {
	in, c := &l.inbound, l.ss.c
	faults := &c.s.faults
	if f := faults.strike(OnSend, l.node.path, ""); f != nil {
		if f.Cut {
			c.nc.Close()
		}
		if f.Condition == "" {
			l.spend()
			return
		}
		l.accept(in.id, in.settled, &wire.Error{Condition: f.Condition, Description: f.Description})
		return
	}
	msgs, err := split(data, in.format)
	if err != nil {
		l.accept(in.id, in.settled, &wire.Error{Condition: "amqp:decode-error", Description: err.Error()})
		return
	}
	l.node.enqueue(msgs)
	if f := faults.strike(OnSendReply, l.node.path, ""); f != nil {
		if f.Cut {
			c.nc.Close()
		}
		l.spend()
		return
	}
	l.accept(in.id, in.settled, nil)
}

// split parses a message, or each message of a batch.
func split(data []byte, format uint32) ([]*wire.Message, error) {
	m, err := wire.ParseMessage(data)
	if err != nil {
		return nil, err
	}
	if format != wire.BatchFormat {
		return []*wire.Message{m}, nil
	}
	sections, _ := m.Body()
	msgs := make([]*wire.Message, 0, len(sections))
	for _, d := range sections {
		m, err := wire.ParseMessage(d)
		if err != nil {
			return nil, err
		}
		msgs = append(msgs, m)
	}
	return msgs, nil
}

// accept tells a sender the outcome, and renews its credit.
func (l *link) accept(id uint32, settled bool, refused *wire.Error) {
	l.spend()
	if settled {
		return
	}
	state := wire.State{Code: wire.CodeAccepted}
	if refused != nil {
		state = wire.State{Code: wire.CodeRejected, Error: refused}
	}
	c := l.ss.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.detached {
		return
	}
	c.send(l.ss.channel, &wire.Disposition{Receiver: true, First: id, Last: id, Settled: true, State: state})
}

// spend counts a message against the credit given and gives more at half.
func (l *link) spend() {
	c := l.ss.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.used = time.Now()
	l.count++
	if l.taken++; l.taken < grant/2 || l.detached {
		return
	}
	l.taken = 0
	l.credit = grant
	l.sendFlow(false)
}
