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
	reconnectBase = 200 * time.Millisecond
	reconnectTop  = 30 * time.Second
	worthAWarning = 3 // lines lost in a row, with nothing received in between
	renewAfter    = 3 // openings failed in a row; then another connection is tried

	waitForMore = 20 * time.Millisecond // after the first message of a receive

	// After a line was lost, messages are asked for one at a time until what it held must have come back: if a message
	// broke the client, those that came with it lost a delivery, and would lose every one of theirs in its company.
	aloneFor = longestLock + time.Minute

	// How long a stopping link waits for what the broker has already sent.
	lingerFor = 500 * time.Millisecond
)

// link keeps one [line] open and fills its share of the slots over it. It asks the broker for exactly its free slots,
// so that no message waits in a buffer while its lock runs down.
type link struct {
	pool     *Pool
	number   int // which of the pool's connections
	queue    string
	slots    chan struct{} // a token per free slot
	log      *slog.Logger
	counts   *Counts
	unopened int        // attempts to open a line that failed, in a row
	worked   bool       // a line was open once
	suspects chan *line // reported by borrowers for whom nothing worked
	retired  *countdown // over once nothing more can arrive on any link of this worker
	skewed   sync.Once  // warns of a clock that is off
	meters   *meters
	refuse   context.CancelCauseFunc // ends the worker

	mu     sync.Mutex
	line   *line         // nil while there is none
	opened chan struct{} // closed while there is one
}

// delivery is one received message in its slot.
type delivery struct {
	*Message
	raw      *azservicebus.ReceivedMessage
	received time.Time
	line     *line // other lines settle it by lock token
}

func newLink(pool *Pool, number int, queue string, slots int, log *slog.Logger, counts *Counts) *link {
	l := &link{pool: pool, number: number, queue: queue, slots: make(chan struct{}, slots), log: log, counts: counts,
		suspects: make(chan *line, 1), opened: make(chan struct{})}
	l.give(slots)
	return l
}

// run receives until ctx ends and hands every message to process in a goroutine of its own; it returns when the last
// of them has.
func (l *link) run(ctx context.Context, process func(*delivery)) {
	var working sync.WaitGroup
	start := func(d *delivery) {
		working.Go(func() {
			defer l.give(1)
			process(d)
		})
	}
	l.retire(l.receiveUntil(ctx, start), start)
	busy, idle := context.WithCancel(context.WithoutCancel(ctx))
	var joined sync.WaitGroup
	joined.Go(func() {
		working.Wait()
		idle()
	})
	l.serve(busy)
	joined.Wait()
	l.drop()
}

// receiveUntil starts what it receives until ctx ends, and returns how much credit is left on the line at most.
func (l *link) receiveUntil(ctx context.Context, start func(*delivery)) (credit int) {
	var alone time.Time
	for lost := 0; ctx.Err() == nil; {
		err := l.open(ctx)
		if err == nil {
			free := l.take(ctx)
			if free == 0 {
				continue // ctx ended, or the line is gone
			}
			ask := free
			if time.Now().Before(alone) {
				ask = 1
			}
			began := time.Now()
			var messages []*delivery
			messages, err = l.receive(ctx, ask)
			l.give(free - len(messages))
			credit = ask - len(messages)
			if len(messages) > 0 {
				lost = 0
				l.meters.received(ctx, began, len(messages))
			}
			for _, d := range messages {
				start(d)
			}
			// Together with messages the SDK keeps quiet about a lost link; but it would have waited for more.
			if len(messages) == ask || len(messages) > 0 && time.Since(began) >= waitForMore {
				continue
			}
		}
		if ctx.Err() != nil {
			break
		}
		if notAllowed(err) && !l.worked {
			l.refuse(ErrSessionQueue)
			break
		}
		// An empty receive means that the link or its connection is gone; the SDK reports few of these as errors, and
		// recovers from fewer: a link detached with server-busy, timeout or operation-cancelled stays dead for ever while
		// the client's own goroutine spins on it. So the line is closed at once, and the pause comes after.
		lost++
		level := slog.LevelDebug
		if lost >= worthAWarning {
			level = slog.LevelWarn
		}
		l.log.Log(ctx, level, "receiver link lost", "queue", l.queue, "in_a_row", lost, "err", err)
		if l.drop() {
			l.counts.Rebuilds.Add(1)
			alone = time.Now().Add(aloneFor)
			credit = 0
		}
		if lost > 1 {
			pause(ctx, backoff(lost-2, reconnectBase, reconnectTop))
		}
	}
	return credit
}

// take waits for a free slot and takes all there are; 0 means that ctx ended or that the line was found dead.
func (l *link) take(ctx context.Context) int {
	if len(l.slots) == 0 { // so no credit is left either
		l.current().rest()
	}
	select {
	case <-ctx.Done():
		return 0
	case ln := <-l.suspects:
		l.check(ctx, ln)
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

// give returns n tokens to the free slots.
func (l *link) give(n int) {
	for range n {
		l.slots <- struct{}{}
	}
}

// receive returns at most n messages. An SDK panic over a property it cannot cast loses this call, not the process:
// the message stays locked, and the broker dead-letters it by its delivery count.
func (l *link) receive(ctx context.Context, n int) (ds []*delivery, err error) {
	ln := l.current()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("receive from %q: client panicked over a message: %v", l.queue, r)
		}
	}()
	raws, err := ln.receiver.ReceiveMessages(ctx, n, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: waitForMore})
	now := time.Now()
	for _, raw := range raws {
		ds = append(ds, &delivery{Message: newMessage(raw), raw: raw, received: now, line: ln})
	}
	return ds, err
}

// retire takes in what the broker has already sent, to be given back at once rather than when its locks end, and
// withdraws the credit that is left then, which the SDK can only do by closing the link. Before that nothing may be
// abandoned: the broker would hand it straight back to us.
func (l *link) retire(credit int, start func(*delivery)) {
	defer l.retired.down()
	ln := l.current()
	if ln == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lingerFor)
	defer cancel()
	for credit > 0 && ctx.Err() == nil {
		messages, _ := l.receive(ctx, credit)
		credit -= len(messages)
		for _, d := range messages {
			<-l.slots // credit is never more than the free slots
			start(d)
		}
		if len(messages) == 0 {
			break
		}
	}
	ln.rest()
	if credit > 0 {
		l.withdraw()
		ln.users.Wait()
		ln.close(l.log)
	}
}

// serve keeps a line open for settlements and renewals until busy ends.
func (l *link) serve(busy context.Context) {
	for failed := 0; busy.Err() == nil && len(l.slots) < cap(l.slots); {
		if err := l.open(busy); err != nil {
			l.log.Debug("receiver link not opened", "queue", l.queue, "err", err)
			pause(busy, backoff(failed, reconnectBase, reconnectTop))
			failed++
			continue
		}
		failed = 0
		select {
		case <-busy.Done():
		case ln := <-l.suspects:
			l.check(busy, ln)
		}
	}
}

// open makes a line unless there is one, and lends it out only when it works.
func (l *link) open(ctx context.Context) error {
	if l.current() != nil {
		return nil
	}
	client := l.pool.client(l.number)
	ln, err := openLine(ctx, client, l.queue, l.log)
	if err != nil {
		l.unopened++
		if l.unopened%renewAfter != 0 {
			return err
		}
		if ln = l.openAnew(ctx, client); ln == nil {
			return err
		}
	}
	l.unopened, l.worked = 0, true
	l.mu.Lock()
	l.line = ln
	close(l.opened)
	l.mu.Unlock()
	return nil
}

// openAnew makes a line over a connection of its own, which becomes the pool's. The SDK takes an error with which the
// peer closes a connection, such as amqp:resource-limit-exceeded or amqp:not-allowed, for the answer to its operation;
// then it keeps the dead connection and fails on it for ever (azure-sdk-for-go#27016).
func (l *link) openAnew(ctx context.Context, stale *azservicebus.Client) *line {
	fresh, err := l.pool.open()
	if err != nil {
		l.log.Warn("no new connection", "err", err)
		return nil
	}
	ln, err := openLine(ctx, fresh, l.queue, l.log)
	closing, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	if err != nil {
		fresh.Close(closing)
		return nil
	}
	swapped, err := l.pool.swap(closing, l.number, stale, fresh)
	l.log.Warn("connection replaced, new links could not be opened on it", "swapped", swapped, "err", err)
	if !swapped { // another link was faster
		return nil
	}
	return ln
}

// current is the line that is open, nil if there is none.
func (l *link) current() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}

// borrow waits for an open line. The borrower calls users.Done on it within [useFor].
func (l *link) borrow(ctx context.Context) (*line, error) {
	for {
		l.mu.Lock()
		ln, opened := l.line, l.opened
		if ln != nil {
			ln.users.Add(1)
		}
		l.mu.Unlock()
		if ln != nil {
			return ln, nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a receiver link: %w", ctx.Err())
		}
	}
}

// suspect asks the owner to look at a line on which something failed.
func (l *link) suspect(ln *line) {
	select {
	case l.suspects <- ln:
	default: // it is about to look
	}
}

// check drops a suspect line that does not answer. While all slots are taken nothing is received, and nobody else
// would find out.
func (l *link) check(ctx context.Context, ln *line) {
	if l.current() != ln {
		return
	}
	if err := ln.probe(ctx, probeFor); err != nil && ctx.Err() == nil {
		l.log.Debug("receiver link dead", "queue", l.queue, "err", err)
		l.drop()
		l.counts.Rebuilds.Add(1)
	}
}

// withdraw lends the line out no more; nil if there was none.
func (l *link) withdraw() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.line
	if ln != nil {
		l.line = nil
		l.opened = make(chan struct{})
	}
	return ln
}

// drop closes the line, over which borrowers may be waiting in vain, and reports whether there was one.
func (l *link) drop() bool {
	ln := l.withdraw()
	if ln != nil {
		ln.close(l.log)
	}
	return ln != nil
}
