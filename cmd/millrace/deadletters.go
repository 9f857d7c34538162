package main

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/claimcheck"
)

const (
	peekAtOnce = 250 // messages; the service answers with fewer if they are large
	peekEvery  = 3 * time.Second
)

// deadLetter is why a claim's message was dead-lettered.
type deadLetter struct{ reason, description string }

// deadLetters looks through a dead-letter queue without locking anything.
type deadLetters struct {
	receiver *azservicebus.Receiver
	queue    string
	screen   *screen
	next     time.Time // not before
	off      bool      // it could not be read
}

// openDeadLetters sends nothing yet.
func openDeadLetters(bus *azservicebus.Client, queue string, s *screen) (*deadLetters, error) {
	receiver, err := bus.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		return nil, setupError{busAdvice(err, queue, roleReceiver)}
	}
	return &deadLetters{receiver: receiver, queue: queue, screen: s}, nil
}

// look returns the dead letters by the name of the result that they will not have; nil if it is too early to look again.
// It looks at all of them each time, since a message keeps its number when it is dead-lettered and may come in before
// those that are there; the longer that takes, the rarer it looks. Without the right to read it says so once.
func (d *deadLetters) look(ctx context.Context, now time.Time) (map[string]deadLetter, error) {
	if d.off || now.Before(d.next) {
		return nil, nil
	}
	found := make(map[string]deadLetter)
	for from := int64(0); ; {
		before := from
		messages, err := d.receiver.PeekMessages(ctx, peekAtOnce, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &from})
		if err != nil {
			return nil, d.failed(ctx, err)
		}
		for _, m := range messages {
			if name, ok := resultNameOf(m.Body); ok {
				found[name] = deadLetter{text(m.DeadLetterReason), text(m.DeadLetterErrorDescription)}
			}
			if m.SequenceNumber != nil {
				from = max(from, *m.SequenceNumber+1)
			}
		}
		if from == before {
			break
		}
	}
	d.next = now.Add(max(peekEvery, 10*time.Since(now)))
	return found, nil
}

// failed decides what a failure means. Results are what is waited for, so none here ends the waiting.
func (d *deadLetters) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	d.off = true
	d.screen.note("the dead letters of %s cannot be read, so a claim among them counts as missing in the end: %v", d.queue, busAdvice(err, d.queue, roleReceiver))
	return nil
}

// resultNameOf is the name of the result that a message asks for.
func resultNameOf(body []byte) (string, bool) {
	claim, err := claimcheck.Decode(body)
	if err != nil {
		return "", false
	}
	name, err := claim.ResultName()
	return name, err == nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
