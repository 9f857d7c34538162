package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	closeTimeout  = 5 * time.Second // a dead link may never answer a detach
	reconnectBase = 200 * time.Millisecond
	reconnectTop  = 30 * time.Second
	worthAWarning = 3 // links lost in a row, with nothing received in between
)

// link is one receiver link with its share of the slots. It asks the broker for exactly its free slots, so that no
// message waits in a buffer while its lock runs down.
type link struct {
	client *azservicebus.Client
	queue  string
	slots  chan struct{} // a token per free slot
	log    *slog.Logger
	counts *Counts

	mu       sync.Mutex
	receiver *azservicebus.Receiver
	epoch    int           // rises with every receiver; older deliveries settle by lock token
	retired  chan struct{} // closed once nothing more can arrive
}

// delivery is one received message in its slot.
type delivery struct {
	*Message
	raw      *azservicebus.ReceivedMessage
	received time.Time
	epoch    int
}

func newLink(client *azservicebus.Client, queue string, slots int, log *slog.Logger, counts *Counts) (*link, error) {
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return nil, fmt.Errorf("open receiver for queue %q: %w", queue, err)
	}
	l := &link{client: client, queue: queue, slots: make(chan struct{}, slots), log: log, counts: counts, receiver: receiver,
		retired: make(chan struct{})}
	for range slots {
		l.slots <- struct{}{}
	}
	return l, nil
}

// run receives until ctx ends and hands every message to process in a goroutine of its own; it returns when the last
// of them has.
func (l *link) run(ctx context.Context, process func(*delivery)) {
	var working sync.WaitGroup
	defer working.Wait()
	defer l.retire()
	lost := 0
	for {
		free := l.take(ctx)
		if free == 0 {
			return
		}
		messages, err := l.receive(ctx, free)
		for range free - len(messages) {
			l.slots <- struct{}{}
		}
		for _, d := range messages {
			working.Go(func() {
				defer func() { l.slots <- struct{}{} }()
				process(d)
			})
		}
		if ctx.Err() != nil {
			return
		}
		if len(messages) > 0 {
			lost = 0
			continue
		}
		// An empty receive means that the link or its connection is gone; the SDK reports few of these as errors, and
		// recovers from fewer: a link detached with server-busy, timeout or operation-cancelled stays dead for ever while
		// the client's own goroutine spins on it. So the receiver is replaced at once, and the pause comes after.
		lost++
		level := slog.LevelDebug
		if lost >= worthAWarning {
			level = slog.LevelWarn
		}
		l.log.Log(ctx, level, "receiver link lost", "queue", l.queue, "in_a_row", lost, "err", err)
		l.replace()
		l.counts.Rebuilds.Add(1)
		if !pause(ctx, backoff(lost-1, reconnectBase, reconnectTop)) {
			return
		}
	}
}

// take waits for a free slot and takes all there are; 0 means that ctx ended.
func (l *link) take(ctx context.Context) int {
	select {
	case <-ctx.Done():
		return 0
	case <-l.slots:
	}
	for n := 1; ; n++ {
		select {
		case <-l.slots:
		default:
			return n
		}
	}
}

// receive returns at most n messages. An SDK panic over a property it cannot cast loses this call, not the process:
// the message stays locked, and the broker dead-letters it by its delivery count.
func (l *link) receive(ctx context.Context, n int) (ds []*delivery, err error) {
	receiver, epoch := l.current()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("receive from %q: client panicked over a message: %v", l.queue, r)
		}
	}()
	raws, err := receiver.ReceiveMessages(ctx, n, nil)
	now := time.Now()
	for _, raw := range raws {
		ds = append(ds, &delivery{Message: newMessage(raw), raw: raw, received: now, epoch: epoch})
	}
	return ds, err
}

// current is the receiver to use now, and the epoch of what it delivers.
func (l *link) current() (*azservicebus.Receiver, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.receiver, l.epoch
}

// replace puts a new receiver in the place of the old one and closes that. Deliveries of the old one settle by lock token
// from now on. A receiver attaches nothing and dials nothing before it is used.
func (l *link) replace() {
	fresh, err := l.client.NewReceiverForQueue(l.queue, nil)
	if err != nil {
		l.log.Warn("receiver could not be replaced", "queue", l.queue, "err", err)
		return
	}
	l.mu.Lock()
	stale := l.receiver
	l.receiver = fresh
	l.epoch++
	l.mu.Unlock()
	closeReceiver(stale, l.log)
}

// retire withdraws the credit that a receive leaves on its link, which the SDK can only do by closing the link. Before
// that nothing may be abandoned: the broker would hand it straight back to us.
func (l *link) retire() {
	l.replace()
	close(l.retired)
}

func (l *link) close() {
	receiver, _ := l.current()
	closeReceiver(receiver, l.log)
}

func closeReceiver(r *azservicebus.Receiver, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		log.Debug("receiver closed with an error", "err", err)
	}
}
