package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// ErrLockLost is the cause with which a handler's context ends when the message's peek-lock is gone or can no longer
// be relied on. Another delivery of the same message is on its way; nothing this handler does will settle it.
var ErrLockLost = errors.New("message lock lost")

// ErrDraining is the cause with which a handler's context ends when the worker is asked to stop: at once for a message
// that has not called [Message.Start], after the grace period for one that has.
var ErrDraining = errors.New("worker is draining")

// Handler does the work of one message and says what became of it. It is called from one goroutine per message and
// may be called again for the same message after a verdict that holds it (see [Kind]). A panic is contained, logged
// with its stack and counts as an unexplained infrastructure verdict.
type Handler func(ctx context.Context, m *Message) Verdict

// Message is one delivery, free of any SDK type, so that a handler can be tested without a queue.
type Message struct {
	ID            string         // broker message id; "" if the producer's was not a string
	CorrelationID string         // property correlation-id, "" if absent
	ContentType   string         // property content-type, "" if absent
	Body          []byte         // the data section; nil if there is none, or several
	Properties    map[string]any // application properties
	Sequence      int64          // number the broker gave on enqueue
	Delivery      int            // 1 on the first delivery, 0 if unknown
	Enqueued      time.Time      // broker's clock; zero if absent

	start *starter
}

// Start marks the point after which cutting the work short would waste what is being paid for. It reports false when
// the worker is draining: then the handler returns [Interrupted] without having begun. Calling it again is harmless,
// and a Message made by hand (in a test) always starts.
func (m *Message) Start() bool {
	return m.start == nil || m.start.begin()
}

// starter decides between a drain and a start, whichever comes first.
type starter struct {
	mu       sync.Mutex
	started  bool
	draining bool
	cut      context.CancelCauseFunc
}

func (s *starter) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.started = true
	return true
}

// drain cuts the work unless it has started.
func (s *starter) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.draining {
		return
	}
	s.draining = true
	s.cut(ErrDraining)
}

func newMessage(r *azservicebus.ReceivedMessage) *Message {
	m := &Message{
		ID:            r.MessageID,
		CorrelationID: deref(r.CorrelationID),
		ContentType:   deref(r.ContentType),
		Body:          r.Body,
		Properties:    r.ApplicationProperties,
		Sequence:      deref(r.SequenceNumber),
		Delivery:      int(r.DeliveryCount),
		Enqueued:      deref(r.EnqueuedTime),
	}
	// The SDK looks at the header only if the message has properties too.
	if raw := r.RawAMQPMessage; m.Delivery == 0 && raw != nil && raw.Header != nil {
		m.Delivery = int(raw.Header.DeliveryCount) + 1
	}
	return m
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
