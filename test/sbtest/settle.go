package sbtest

import (
	"errors"
	"slices"
	"time"

	"millrace/test/sbtest/internal/engine"
	"millrace/test/sbtest/internal/wire"
)

// lockLostText is what the service says; clients have been seen to look for its
// beginning.
const lockLostText = "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."

const (
	reasonKey      = "DeadLetterReason"
	descriptionKey = "DeadLetterErrorDescription"
)

// settle applies a client's disposition to one delivery and answers it. One it
// does not know is ignored, as is a state that is not final.
func (ss *session) settle(id uint32, d *wire.Disposition) {
	c := ss.c
	c.mu.Lock()
	held, ok := ss.unsettled[id]
	if !ok || d.State.Code == wire.CodeReceived || d.State.Code == 0 && !d.Settled {
		c.mu.Unlock()
		return
	}
	full := len(ss.unsettled) >= maxUnsettled
	delete(ss.unsettled, id)
	held.link.used = time.Now()
	c.mu.Unlock()

	n := held.link.node
	answer := wire.State{Code: d.State.Code}
	if f := c.s.faults.strike(OnSettle, n.path, ""); f != nil {
		if f.Cut {
			c.nc.Close()
		}
		if f.Condition == "" {
			return
		}
		answer = wire.State{Code: wire.CodeRejected, Error: &wire.Error{Condition: f.Condition, Description: f.Description}}
	} else if err := n.apply(held.token, &d.State); err != nil {
		answer = wire.State{Code: wire.CodeRejected, Error: refusal(err)}
	}
	if full {
		c.mu.Lock()
		ready := ss.consumers()
		c.mu.Unlock()
		offerAll(ready)
	}
	if f := c.s.faults.strike(OnSettleReply, n.path, ""); f != nil {
		if f.Cut {
			c.nc.Close()
		}
		return
	}
	if d.Settled || answer.Code == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if held.link.detached {
		return
	}
	c.send(ss.channel, &wire.Disposition{First: id, Last: id, Settled: true, State: answer})
}

func refusal(err error) *wire.Error {
	switch {
	case errors.Is(err, engine.ErrLockLost):
		return &wire.Error{Condition: "com.microsoft:message-lock-lost", Description: lockLostText}
	case errors.Is(err, engine.ErrSubQueue):
		return &wire.Error{Condition: "amqp:not-allowed", Description: err.Error()}
	}
	return &wire.Error{Condition: "amqp:internal-error", Description: err.Error()}
}

// apply gives a delivery state its meaning for the queue. Abandon and defer
// differ only in undeliverable-here; a client that settles without a state
// leaves the message as it was.
func (n *node) apply(token wire.UUID, s *wire.State) (err error) {
	n.ent.update(func(t time.Time) {
		q := n.queue
		switch s.Code {
		case wire.CodeAccepted:
			err = q.Complete(t, token)
		case wire.CodeModified:
			if s.UndeliverableAt {
				err = q.Defer(t, token, s.Annotations)
			} else {
				err = q.Abandon(t, token, s.Annotations)
			}
		case wire.CodeRejected:
			reason, description, props := deadLetterOf(s.Error)
			err = q.DeadLetter(t, token, reason, description, props)
		default:
			err = q.Release(t, token)
		}
	})
	return err
}

// deadLetterOf reads reason, description and properties from a rejection's info.
// Without an info the condition is the reason.
func deadLetterOf(e *wire.Error) (reason, description string, props wire.Map) {
	if e == nil {
		return "", "", nil
	}
	if e.Condition != "com.microsoft:dead-letter" && e.Info == nil {
		return e.Condition, e.Description, nil
	}
	for _, p := range e.Info {
		key, _ := p.Key.(string)
		if s, ok := p.Key.(wire.Symbol); ok {
			key = string(s)
		}
		switch key {
		case reasonKey:
			reason, _ = p.Value.(string)
		case descriptionKey:
			description, _ = p.Value.(string)
		default:
			props = append(props, p)
		}
	}
	return reason, description, props
}

// sorted orders delivery ids from first on, with wrap-around.
func sorted(ids []uint32, first uint32) []uint32 {
	slices.SortFunc(ids, func(a, b uint32) int { return int(int64(a-first) - int64(b-first)) })
	return ids
}
