package main

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// outbox sends messages in batches as large as the link takes. It is used by one goroutine.
type outbox struct {
	sender *azservicebus.Sender
	batch  *azservicebus.MessageBatch // nil before the first message
	sent   int                        // messages that the broker has taken
}

// open connects, so that a mistake in the queue's name shows before anything else is done.
func (o *outbox) open(ctx context.Context) (err error) {
	if o.batch == nil {
		o.batch, err = o.sender.NewMessageBatch(ctx, nil)
	}
	return err
}

// add puts m into the batch, after sending that if it is full.
func (o *outbox) add(ctx context.Context, m *azservicebus.Message) error {
	if err := o.open(ctx); err != nil {
		return err
	}
	err := o.batch.AddMessage(m, nil)
	if errors.Is(err, azservicebus.ErrMessageTooLarge) && o.batch.NumMessages() > 0 {
		if _, err := o.flush(ctx); err != nil {
			return err
		}
		if err := o.open(ctx); err != nil {
			return err
		}
		err = o.batch.AddMessage(m, nil)
	}
	if errors.Is(err, azservicebus.ErrMessageTooLarge) {
		return o.tooLarge(ctx, m)
	}
	return err
}

// flush sends what is in the batch and returns how many messages that was. After an error the broker may have them.
func (o *outbox) flush(ctx context.Context) (int, error) {
	if o.batch == nil || o.batch.NumMessages() == 0 {
		return 0, nil
	}
	n := int(o.batch.NumMessages())
	if err := o.sender.SendMessageBatch(ctx, o.batch, nil); err != nil {
		return 0, err
	}
	o.batch = nil
	o.sent += n
	return n, nil
}

// sizeError is a message that the link does not take.
type sizeError struct{ size, limit uint64 }

func (e *sizeError) Error() string {
	return fmt.Sprintf("the message has %d bytes, the queue's limit is %d; shorten the claim's attributes and names, or raise the queue's maximum message size", e.size, e.limit)
}

// tooLarge measures a message and the link's limit, which the SDK does not tell.
func (o *outbox) tooLarge(ctx context.Context, m *azservicebus.Message) error {
	const huge = 64 << 20
	size := func(m *azservicebus.Message, within uint64) (uint64, error) {
		batch, err := o.sender.NewMessageBatch(ctx, &azservicebus.MessageBatchOptions{MaxBytes: within})
		if err == nil {
			err = batch.AddMessage(m, nil)
		}
		if err != nil {
			return 0, err
		}
		return batch.NumBytes(), nil
	}
	needed, err := size(m, huge)
	if err != nil {
		return err
	}
	probe := func(n int) *azservicebus.Message {
		c := *m
		c.Body = make([]byte, n)
		return &c
	}
	most := sort.Search(len(m.Body)+1, func(n int) bool {
		_, err := size(probe(n), 0)
		return err != nil
	})
	limit, err := size(probe(max(most-1, 0)), huge)
	if err != nil {
		return err
	}
	return &sizeError{needed, limit}
}
