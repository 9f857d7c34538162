package sbtest

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"math"
	"sort"
	"time"

	"millrace/test/sbtest/internal/engine"
	"millrace/test/sbtest/internal/wire"
)

// Message is a message as tests put it into a queue and look at it there.
type Message struct {
	ID            string // Default: a random id
	Body          []byte
	ContentType   string
	CorrelationID string
	Subject       string
	To            string
	ReplyTo       string
	SessionID     string
	// ApplicationProperties holds string, bool, integers, floats, []byte and
	// time.Time. When peeked it may hold other types of AMQP, of which nothing
	// but their fmt form is promised.
	ApplicationProperties map[string]any
	TimeToLive            time.Duration // Default: 0, none
	ScheduledEnqueueTime  time.Time     // Default: zero, at once

	// Raw is the encoded message, all sections. When Send gets it, everything
	// above is ignored. Peek fills it with the sections from the properties on.
	Raw []byte

	// Set by Peek.
	SequenceNumber   int64
	EnqueuedTime     time.Time
	ExpiresAt        time.Time // zero: never
	LockedUntil      time.Time // zero: not locked
	DeliveryCount    int       // failed deliveries; the SDK shows one more
	State            string    // "active", "deferred" or "scheduled"
	DeadLetterSource string    // in a dead-letter queue: the queue it comes from
}

// DeadLetterReason is the application property of that name, "" if absent.
func (m *Message) DeadLetterReason() string {
	s, _ := m.ApplicationProperties[reasonKey].(string)
	return s
}

// DeadLetterErrorDescription is the application property of that name, "" if
// absent.
func (m *Message) DeadLetterErrorDescription() string {
	s, _ := m.ApplicationProperties[descriptionKey].(string)
	return s
}

// Send puts a message into a queue without a client. It is [ErrTooLarge] above
// MaxMessageSize, [ErrClosed] after Close, and another error if Raw is not a message or a property has a type
// that AMQP does not know.
func (s *Server) Send(queue string, m Message) error {
	n, err := s.lookup(queue)
	if err != nil {
		return err
	}
	select {
	case <-s.done:
		return ErrClosed
	default:
	}
	raw := bytes.Clone(m.Raw)
	if raw == nil {
		if raw, err = m.encode(); err != nil {
			return err
		}
	}
	if int64(len(raw)) > s.MaxMessageSize {
		return ErrTooLarge
	}
	parsed, err := wire.ParseMessage(raw)
	if err != nil {
		return fmt.Errorf("parse message: %w", err)
	}
	n.enqueue([]*wire.Message{parsed})
	return nil
}

func (m *Message) encode() ([]byte, error) {
	b := &wire.Built{
		TTL: millis(m.TimeToLive),
		To:  m.To, Subject: m.Subject, ReplyTo: m.ReplyTo,
		ContentType: m.ContentType, GroupID: m.SessionID, Data: m.Body,
	}
	if m.ID != "" {
		b.MessageID = m.ID
	}
	if m.CorrelationID != "" {
		b.CorrelationID = m.CorrelationID
	}
	if !m.ScheduledEnqueueTime.IsZero() {
		b.Annotations = wire.Map{{
			Key:   wire.Symbol(engine.ScheduledTime),
			Value: wire.Timestamp(m.ScheduledEnqueueTime.UnixMilli()),
		}}
	}
	keys := make([]string, 0, len(m.ApplicationProperties))
	for k := range m.ApplicationProperties {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		v := m.ApplicationProperties[k]
		switch t := v.(type) {
		case nil, bool, int8, int16, int32, int64, int, uint8, uint16, uint32, uint64, float32, float64, string, []byte:
		case time.Time:
			v = wire.Timestamp(t.UnixMilli())
		default:
			return nil, fmt.Errorf("encode property %q: a %T is not an AMQP type", k, v)
		}
		b.AppProperties = append(b.AppProperties, wire.Pair{Key: k, Value: v})
	}
	return wire.AppendMessage(nil, b), nil
}

// Peek returns up to max messages of a queue or dead-letter queue in order of
// their sequence numbers, in whatever state they are; max <= 0 means all. It
// changes nothing. A queue that does not exist has none.
func (s *Server) Peek(queue string, max int) []Message {
	n, err := s.lookup(queue)
	if err != nil {
		return nil
	}
	if max <= 0 {
		max = int(^uint(0) >> 1)
	}
	var found []Message
	n.ent.update(func(t time.Time) {
		for _, e := range n.queue.Peek(t, 0, max) {
			found = append(found, show(e))
		}
	})
	return found
}

func show(e *engine.Entry) Message {
	p := e.Message.Properties()
	m := Message{
		ID: e.ID, CorrelationID: wire.IDText(p.CorrelationID), ContentType: p.ContentType, Subject: p.Subject, To: p.To, ReplyTo: p.ReplyTo, SessionID: p.GroupID,
		TimeToLive: e.TTL, ScheduledEnqueueTime: e.Later,
		Raw:            bytes.Clone(e.Message.Bare()),
		SequenceNumber: e.Seq, EnqueuedTime: e.Enqueued, ExpiresAt: e.Expires, LockedUntil: e.LockedUntil,
		DeliveryCount: int(e.Deliveries), State: e.State.String(), DeadLetterSource: e.Source,
	}
	data, value := e.Message.Body()
	m.Body = bytes.Join(data, nil)
	switch v := value.(type) {
	case string:
		m.Body = []byte(v)
	case []byte:
		m.Body = v
	}
	for _, pair := range e.Message.AppProperties() {
		if m.ApplicationProperties == nil {
			m.ApplicationProperties = make(map[string]any)
		}
		v := pair.Value
		if ts, ok := v.(wire.Timestamp); ok {
			v = time.UnixMilli(int64(ts))
		}
		m.ApplicationProperties[fmt.Sprint(pair.Key)] = v
	}
	return m
}

// view is the occasion a message is encoded for; the annotations differ.
type view int

const (
	onDelivery view = iota
	onPeek
	onDeferred
)

// appendEntry encodes a message for a client. An ordinary delivery carries
// exactly enqueued time, sequence number and lock; the message state and its
// first number belong to peeked and deferred messages.
func appendEntry(b []byte, e *engine.Entry, n *node, v view) []byte {
	extra := wire.Map{
		{Key: wire.Symbol("x-opt-enqueued-time"), Value: wire.Timestamp(e.Enqueued.UnixMilli())},
		{Key: wire.Symbol("x-opt-sequence-number"), Value: e.Seq},
	}
	var delivery wire.Map
	if e.Locked() {
		extra = append(extra, wire.Pair{Key: wire.Symbol("x-opt-locked-until"), Value: wire.Timestamp(e.LockedUntil.UnixMilli())})
		if v != onPeek {
			delivery = wire.Map{{Key: wire.Symbol("x-opt-lock-token"), Value: e.LockToken}}
		}
	}
	if n == &n.ent.dead {
		extra = append(extra, wire.Pair{Key: wire.Symbol("x-opt-deadletter-source"), Value: e.Source})
	}
	if v != onDelivery {
		state := e.State
		if v == onDeferred { // it may just have been taken out
			state = engine.Deferred
		}
		extra = append(extra,
			wire.Pair{Key: wire.Symbol("x-opt-message-state"), Value: int32(state)},
			wire.Pair{Key: wire.Symbol("x-opt-enqueue-sequence-number"), Value: e.FirstSeq})
	}
	b = e.Message.AppendHead(b, e.Deliveries, millis(e.TTL), delivery, extra)
	return append(b, e.Message.Bare()...)
}

// millis is a time to live as a header holds it: at most about 49 days.
func millis(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), math.MaxUint32))
}

// newID is the id of a message that came without one.
func newID() string {
	var u wire.UUID
	rand.Read(u[:])
	return u.String()
}
