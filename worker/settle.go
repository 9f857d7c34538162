package worker

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	// settleFor covers one attempt on a link that turns out to be dead, finding that out, and a new line.
	settleFor = 30 * time.Second

	maxReason      = 128  // characters of a dead-letter reason
	maxDescription = 1024 // bytes of a dead-letter description; the service's limit for one property is 32 KB
)

// settle carries out what the verdict means for the message. It gives up when held, the life of the lock, ends or
// settleFor is over: then the broker delivers the message again, and the result that is already there answers it.
func (l *link) settle(held context.Context, draining context.Context, d *delivery, v Verdict) error {
	if held.Err() != nil || v.lockIsLost() {
		l.forget(d)
		return ErrLockLost
	}
	if v.settlement() == Abandon && draining.Err() != nil {
		select {
		case <-l.retired.over:
		case <-held.Done():
			return ErrLockLost
		}
	}
	ctx, cancel := context.WithTimeout(held, settleFor)
	defer cancel()
	raw := d.raw
	for n := 0; ; n++ {
		ln, err := l.borrow(ctx)
		if err != nil {
			return err
		}
		if ln != d.line {
			raw = tokenOnly(raw)
		}
		err = settleOn(ctx, ln, raw, v)
		if err == nil || lockLost(err) {
			return err
		}
		// A settlement whose link died hangs for most of a minute and tears the shared connection down with every retry,
		// although the lock is still good. So each attempt is short, and after the first failure the lock token is used.
		raw = tokenOnly(raw)
		l.suspect(ln)
		l.log.Debug("settlement failed", "message_id", d.ID, "settlement", v.settlement(), "err", err)
		if !pause(ctx, backoff(n, 100*time.Millisecond, 5*time.Second)) {
			return err
		}
	}
}

// forget ends a delivery whose lock is lost. The broker refuses the settlement, the message belongs to its next
// delivery; but a delivery nobody settles stays in the client's session map for ever, and the service stops a link
// with 5,000 of them.
func (l *link) forget(d *delivery) {
	ctx, cancel := context.WithTimeout(context.Background(), useFor)
	defer cancel()
	ln, err := l.borrow(ctx)
	if err != nil {
		return
	}
	if ln != d.line { // that session is gone, and its map with it
		ln.users.Done()
		return
	}
	if err := settleOn(ctx, ln, d.raw, Interrupted(ErrLockLost)); !lockLost(err) {
		l.log.Debug("settling a lost lock", "message_id", d.ID, "err", err)
	}
}

// settleOn makes one attempt over ln and gives it back.
func settleOn(ctx context.Context, ln *line, raw *azservicebus.ReceivedMessage, v Verdict) error {
	defer ln.users.Done()
	ctx, cancel := context.WithTimeout(ctx, useFor)
	defer cancel()
	switch v.settlement() {
	case Complete:
		return ln.receiver.CompleteMessage(ctx, raw, nil)
	case DeadLetter:
		reason, description := printable(v.Reason, maxReason), printable(v.Detail, maxDescription)
		return ln.receiver.DeadLetterMessage(ctx, raw, &azservicebus.DeadLetterOptions{
			Reason: &reason, ErrorDescription: &description,
		})
	}
	return ln.receiver.AbandonMessage(ctx, raw, nil)
}

// settlement is what the verdict comes to when nobody waits any longer.
func (v Verdict) settlement() Settlement {
	if s := v.Kind.Settlement(); s != Hold {
		return s
	}
	return Abandon
}

// tokenOnly makes the SDK settle through $management, which works on any link as long as the lock lives.
func tokenOnly(m *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage {
	return &azservicebus.ReceivedMessage{LockToken: m.LockToken}
}

// printable makes s fit for a message property: valid UTF-8, one line, at most n bytes.
func printable(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) <= n {
		return s
	}
	const more = "…"
	cut := n - len(more)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}
