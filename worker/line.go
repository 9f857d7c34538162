package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

const (
	// Setting up a line takes about 20 round trips, and a dead connection costs the SDK's first back-off, up to 5.2 s,
	// on top.
	openFor = 30 * time.Second

	// One use of an open line: shorter than the SDK's first back-off of at least 3.2 s, after which it would tear down the
	// connection that all lines of a client share, and set links up again behind a receiver that is closed by then.
	useFor   = 3 * time.Second
	probeFor = 2 * time.Second
	closeFor = 5 * time.Second // a dead link may never answer a detach
)

// line is one SDK receiver with its link and the link to $management, from opening to closing. Only its owner, the
// goroutine in [link.run], opens and closes it; everybody else borrows a line that is open. Were many to use a new
// receiver at once, the SDK would set up links for each of them (amqpLinks.go, Get), and the surplus ones would stay
// attached, with credit and without a reader, until the connection ends.
type line struct {
	receiver *azservicebus.Receiver
	users    sync.WaitGroup // of borrowers
}

// openLine makes a line that works. It dials if the client has no connection.
func openLine(ctx context.Context, client *azservicebus.Client, queue string, log *slog.Logger) (*line, error) {
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return nil, fmt.Errorf("open receiver for queue %q: %w", queue, err)
	}
	ln := &line{receiver: receiver}
	if err := ln.probe(ctx, openFor); err != nil {
		ln.close(log)
		return nil, fmt.Errorf("open receiver for queue %q: %w", queue, err)
	}
	return ln, nil
}

// probe sets up what is missing and asks for an answer of the broker: the renewal of a lock that nobody holds is
// refused as lost if everything is up.
func (ln *line) probe(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	nobodys := &azservicebus.ReceivedMessage{}
	rand.Read(nobodys.LockToken[:])
	if err := ln.receiver.RenewMessageLock(ctx, nobodys, nil); err != nil && !lockLost(err) {
		return err
	}
	return nil
}

// rest ends what a receive leaves running in the client: a goroutine that releases what still arrives. Where no credit
// is left it has no purpose, and on a link detached with server-busy it would spin, on a core of its own, until the
// next receive.
func (ln *line) rest() {
	ln.receiver.ReceiveMessages(context.Background(), 0, nil) // refused, after it has ended that goroutine
}

func (ln *line) close(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	if err := ln.receiver.Close(ctx); err != nil {
		log.Debug("receiver closed with an error", "err", err)
	}
}

// lockLost reports whether the broker said that the lock is gone.
func lockLost(err error) bool {
	var e *azservicebus.Error
	return errors.As(err, &e) && e.Code == azservicebus.CodeLockLost
}

// notAllowed reports whether the broker forbids to receive in this way, as it does on a queue that requires sessions. A
// connection that is closed with the same word says nothing about the queue.
func notAllowed(err error) bool {
	var connection *amqp.ConnError
	var e *amqp.Error
	return !errors.As(err, &connection) && errors.As(err, &e) && e.Condition == amqp.ErrCondNotAllowed
}
