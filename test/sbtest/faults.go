package sbtest

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Point is where a [Fault] strikes.
type Point int

// The points. "Before" ones replace what the broker would do; "reply" ones let it
// happen and lose the answer.
const (
	OnOpen           Point = iota + 1 // the connection is opened and closed again with Condition
	OnToken                           // put-token is answered with Status
	OnAttachSender                    // a client's sender is refused with Condition
	OnAttachReceiver                  // a client's receiver is refused with Condition
	OnDeliver                         // the receiver link is detached with Condition instead of getting a message
	OnSend                            // the message is not stored and rejected with Condition
	OnSendReply                       // the message is stored and its sender hears nothing
	OnSettle                          // the settlement is not applied and rejected with Condition
	OnSettleReply                     // the settlement is applied and the client hears nothing
	OnRequest                         // the management request is not executed and answered with Status
	OnRequestReply                    // the management request is executed and the client hears nothing
	OnHeartbeat                       // the keep-alive frame is not sent
)

// Fault is something that goes wrong on purpose. Where a point wants a
// Condition or a Status and the fault has none, the client hears nothing at
// all. Conditions of Service Bus start with com.microsoft: (server-busy,
// timeout, operation-cancelled, entity-disabled, …), those of AMQP with amqp:.
type Fault struct {
	Point       Point
	Queue       string // name of a queue or dead-letter queue. Default: "", any
	Operation   string // of OnRequest, without "com.microsoft:". Default: "", any
	Condition   string
	Description string
	Status      int  // HTTP-like code of OnToken and OnRequest
	Cut         bool // also drop the connection, without a word
	After       int  // occurrences left alone first. Default: 0
	Times       int  // occurrences struck. Default: 0, which is once; -1 is until removed
}

// faults holds what was injected. The count keeps the hot path to one load.
type faults struct {
	live atomic.Int32
	mu   sync.Mutex
	list []*Fault
}

// Inject adds a fault and returns a function that removes it. Faults are
// consulted in the order they were added; the first that matches strikes.
func (s *Server) Inject(f Fault) (remove func()) {
	if f.Times == 0 {
		f.Times = 1
	}
	own := &f
	s.faults.mu.Lock()
	s.faults.list = append(s.faults.list, own)
	s.faults.live.Store(int32(len(s.faults.list)))
	s.faults.mu.Unlock()
	return func() { s.faults.remove(own) }
}

func (fs *faults) remove(f *Fault) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.drop(f)
}

func (fs *faults) drop(f *Fault) {
	for i, g := range fs.list {
		if g == f {
			fs.list = append(fs.list[:i:i], fs.list[i+1:]...)
			break
		}
	}
	fs.live.Store(int32(len(fs.list)))
}

// strike returns the fault for this occurrence, nil for none.
func (fs *faults) strike(p Point, queue, operation string) *Fault {
	if fs.live.Load() == 0 {
		return nil
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.list {
		if f.Point != p || f.Queue != "" && !strings.EqualFold(f.Queue, queue) ||
			f.Operation != "" && f.Operation != operation {
			continue
		}
		if f.After > 0 {
			f.After--
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				fs.drop(f)
			}
		}
		return f
	}
	return nil
}

// Detach ends every receiver link of a queue now with this condition and
// returns how many there were. With com.microsoft:server-busy, timeout or
// operation-cancelled the Go SDK's receiver stays dead for good.
func (s *Server) Detach(queue, condition, description string) int {
	n, err := s.lookup(queue)
	if err != nil {
		return 0
	}
	s.mu.Lock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	detached := 0
	for _, c := range all {
		detached += c.detachWhere(condition, description, func(l *link) bool {
			return l.kind == consumer && l.node == n
		})
	}
	return detached
}
