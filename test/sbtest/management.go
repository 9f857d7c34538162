package sbtest

import (
	"errors"
	"time"

	"millrace/test/sbtest/internal/engine"
	"millrace/test/sbtest/internal/wire"
)

// peekBytes bounds the messages in one answer to a peek; there is always one.
const peekBytes = 1 << 20

var (
	okAnswer   = answer{status: 200, description: "OK"}
	noContent  = answer{status: 204, description: "No Content"}
	badRequest = answer{status: 500, description: "The request is malformed."} // 400 would cost the client its connection
)

// manage executes a request to a $management node. Operations are named without
// their prefix com.microsoft:. The answers avoid codes that make the Go SDK
// rebuild its connection; it does so for all but 401, 404, 408, 410, 500, 503.
func (n *node) manage(op string, body wire.Map) answer {
	switch op {
	case "renew-lock":
		return n.renewLocks(body)
	case "update-disposition":
		return n.updateDisposition(body)
	case "peek-message":
		return n.peekMessages(body)
	case "receive-by-sequence-number":
		return n.receiveDeferred(body)
	case "schedule-message":
		return n.schedule(body)
	case "cancel-scheduled-message":
		return n.cancel(body)
	case "get-message-sessions":
		return noContent // no session queues here
	}
	return answer{status: 404, description: "The operation '" + op + "' is not supported."}
}

func failure(err error) answer {
	if errors.Is(err, engine.ErrLockLost) {
		return answer{status: 410, description: lockLostText}
	}
	return answer{status: 404, description: err.Error()}
}

// elements returns the elements of an array or list argument.
func elements[T any](v any) (out []T, ok bool) {
	var items []any
	switch v := v.(type) {
	case wire.Array:
		items = v.Elements
	case wire.List:
		items = v
	default:
		return nil, false
	}
	for _, item := range items {
		t, is := item.(T)
		if !is {
			return nil, false
		}
		out = append(out, t)
	}
	return out, true
}

func (n *node) renewLocks(body wire.Map) answer {
	tokens, ok := elements[wire.UUID](body.Get("lock-tokens"))
	if !ok {
		return badRequest
	}
	ends := wire.Array{Code: wire.ArrayTimestamp}
	var failed error
	n.ent.update(func(t time.Time) {
		for _, token := range tokens {
			until, err := n.queue.Renew(t, token)
			if err != nil {
				failed = err
				return
			}
			ends.Elements = append(ends.Elements, wire.Timestamp(until.UnixMilli()))
		}
	})
	if failed != nil {
		return failure(failed)
	}
	a := okAnswer
	a.body = wire.Map{{Key: "expirations", Value: ends}}
	return a
}

func (n *node) updateDisposition(body wire.Map) answer {
	tokens, ok := elements[wire.UUID](body.Get("lock-tokens"))
	if !ok {
		return badRequest
	}
	props, _ := body.Get("properties-to-modify").(wire.Map)
	status := body.Text("disposition-status")
	var failed error
	n.ent.update(func(t time.Time) {
		for _, token := range tokens {
			switch status {
			case "completed":
				failed = n.queue.Complete(t, token)
			case "abandoned":
				failed = n.queue.Abandon(t, token, props)
			case "defered": // sic
				failed = n.queue.Defer(t, token, props)
			case "suspended":
				failed = n.queue.DeadLetter(t, token, body.Text("deadletter-reason"), body.Text("deadletter-description"), props)
			default:
				ok = false
			}
			if failed != nil {
				return
			}
		}
	})
	if !ok {
		return badRequest
	}
	if failed != nil {
		return failure(failed)
	}
	return okAnswer
}

func (n *node) peekMessages(body wire.Map) answer {
	from, _ := body.Get("from-sequence-number").(int64)
	count, _ := body.Get("message-count").(int32)
	var list wire.List
	n.ent.update(func(t time.Time) {
		size := 0
		for _, e := range n.queue.Peek(t, from, int(count)) {
			b := appendEntry(nil, e, n, onPeek)
			if size += len(b); size > peekBytes && len(list) > 0 {
				break
			}
			list = append(list, wire.Map{{Key: "message", Value: b}})
		}
	})
	if len(list) == 0 {
		return noContent
	}
	a := okAnswer
	a.body = wire.Map{{Key: "messages", Value: list}}
	return a
}

func (n *node) receiveDeferred(body wire.Map) answer {
	seqs, ok := elements[int64](body.Get("sequence-numbers"))
	if !ok {
		return badRequest
	}
	remove := false // receiver-settle-mode: uint in the SDK, ubyte in the documentation
	switch mode := body.Get("receiver-settle-mode").(type) {
	case uint32:
		remove = mode == 0
	case uint8:
		remove = mode == 0
	}
	var list wire.List
	var failed error
	n.ent.update(func(t time.Time) {
		var found []*engine.Entry
		found, failed = n.queue.TakeDeferred(t, seqs, remove)
		for _, e := range found {
			n.seen.add(e)
			list = append(list, wire.Map{
				{Key: "lock-token", Value: e.LockToken},
				{Key: "message", Value: appendEntry(nil, e, n, onDeferred)},
			})
		}
	})
	if failed != nil {
		return failure(failed)
	}
	if len(list) == 0 {
		return noContent
	}
	a := okAnswer
	a.body = wire.Map{{Key: "messages", Value: list}}
	return a
}

func (n *node) schedule(body wire.Map) answer {
	items, ok := elements[wire.Map](body.Get("messages"))
	if !ok {
		return badRequest
	}
	if n == &n.ent.dead {
		return answer{status: 404, description: "Messages cannot be sent to a dead-letter queue."}
	}
	var msgs []*wire.Message
	for _, item := range items {
		raw, _ := item.Get("message").([]byte)
		m, err := wire.ParseMessage(raw)
		if err != nil {
			return badRequest
		}
		msgs = append(msgs, m)
	}
	numbers := wire.Array{Code: wire.ArrayLong}
	for _, seq := range n.enqueue(msgs) {
		numbers.Elements = append(numbers.Elements, seq)
	}
	a := okAnswer
	a.body = wire.Map{{Key: "sequence-numbers", Value: numbers}}
	return a
}

func (n *node) cancel(body wire.Map) answer {
	seqs, ok := elements[int64](body.Get("sequence-numbers"))
	if !ok {
		return badRequest
	}
	var err error
	n.ent.update(func(t time.Time) { err = n.queue.Cancel(t, seqs) })
	if err != nil {
		return failure(err)
	}
	return okAnswer
}
