package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/claimcheck"
)

// uploads is how many documents are uploaded at once.
const uploads = 16

// receipt is a claim that was sent, and how to find its result.
type receipt struct {
	Document      string `json:"document"`
	Tenant        string `json:"tenant"`
	Model         string `json:"model"`
	CorrelationID string `json:"correlation_id"`
	Run           string `json:"run,omitempty"`
	Blob          string `json:"blob"`
	ETag          string `json:"etag,omitempty"`
	WorkID        string `json:"work_id"`
	Result        string `json:"result"`
}

// producer uploads documents and sends their claims, as an upload pipeline does.
type producer struct {
	client *client
	queue  string
	store  *claimcheck.Store
	heads  *http.Transport // for looking up ETags
	out    *outbox
}

// openProducer connects to the queue. The caller closes the bus.
func openProducer(ctx context.Context, c *client, bus *azservicebus.Client, queue, anyContainer string) (*producer, error) {
	results := c.results
	if results == "" {
		results = anyContainer // a Store needs one, and uploading does not use it
	}
	store, err := c.store(results, uploads)
	if err != nil {
		return nil, err
	}
	sender, err := bus.NewSender(queue, nil)
	if err != nil {
		return nil, setupError{busAdvice(err, queue, roleSender)}
	}
	p := &producer{client: c, queue: queue, store: store, out: &outbox{sender: sender}, heads: &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: uploads, ForceAttemptHTTP2: true,
	}}
	if err := p.out.open(ctx); err != nil {
		return nil, busAdvice(err, queue, roleSender)
	}
	return p, nil
}

// parcel is a claim that can be sent.
type parcel struct {
	receipt receipt
	message *azservicebus.Message
}

// send carries out the orders and tells sent of every claim that the broker has taken. It stops at the first error.
func (p *producer) send(ctx context.Context, orders []order, sent func(receipt) error) error {
	defer p.heads.CloseIdleConnections()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	ready := make(chan parcel, 1024)
	next := make(chan order)
	var working sync.WaitGroup
	for range min(uploads, len(orders)) {
		working.Go(func() {
			for o := range next {
				parcel, err := p.prepare(ctx, o)
				if err != nil {
					fail(err)
					return
				}
				select {
				case ready <- parcel:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	working.Go(func() {
		defer close(next)
		for _, o := range orders {
			select {
			case next <- o:
			case <-ctx.Done():
				return
			}
		}
	})
	go func() {
		working.Wait()
		close(ready) // which ends post, and with it send
	}()
	err := p.post(ctx, ready, sent)
	if cause := context.Cause(ctx); cause != nil {
		err = cause // what a worker met comes first; what post met is only that everything stops
	}
	fail(err)
	for range ready { // until the workers have ended
	}
	return err
}

// post sends what is ready, all of it in one batch if it fits: what arrives meanwhile is the next one.
func (p *producer) post(ctx context.Context, ready <-chan parcel, sent func(receipt) error) error {
	var inBatch []receipt
	flush := func() error {
		if _, err := p.out.flush(ctx); err != nil {
			return busAdvice(err, p.queue, roleSender)
		}
		return flushed(&inBatch, sent)
	}
	for next := range ready {
		before := p.out.sent
		if err := p.out.add(ctx, next.message); err != nil {
			if errors.As(err, new(*sizeError)) {
				return fmt.Errorf("%s: %w", shown(next.receipt.Document), err)
			}
			return busAdvice(err, p.queue, roleSender)
		}
		if p.out.sent > before { // the batch before this one went
			if err := flushed(&inBatch, sent); err != nil {
				return err
			}
		}
		inBatch = append(inBatch, next.receipt)
		if len(ready) > 0 {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return flush()
}

// flushed tells sent of every receipt of a batch that the broker has taken.
func flushed(batch *[]receipt, sent func(receipt) error) error {
	for _, r := range *batch {
		if err := sent(r); err != nil {
			return err
		}
	}
	*batch = (*batch)[:0]
	return nil
}

// prepare uploads a document, or looks at one that is there, and makes its message.
func (p *producer) prepare(ctx context.Context, o order) (parcel, error) {
	claim := o.claim
	switch {
	case o.file != nil:
		body, err := o.file.read()
		if err != nil {
			return parcel{}, fmt.Errorf("%s: cannot be read: %s", shown(o.label), reason(err))
		}
		if int64(len(body)) > p.client.largest() {
			return parcel{}, fmt.Errorf("%s: has grown to %d bytes, more than a document may have", shown(o.label), len(body))
		}
		if claim.ETag, err = p.store.Upload(ctx, o.ref, body, o.file.contentType(body)); err != nil {
			return parcel{}, fmt.Errorf("upload %s: %w", shown(o.label), blobAdvice(err, o.ref.ContainerURL(), "--container", roleContributor))
		}
	case o.pin:
		etag, err := p.client.etag(ctx, o.ref, p.heads)
		if err != nil {
			return parcel{}, fmt.Errorf("%s: %w", shown(o.label), err)
		}
		claim.ETag = etag
	}
	return parcelOf(o.label, claim)
}

// parcelOf makes the message of a claim. Its id follows from the claim, so that a queue that detects duplicates drops the
// second of two equal claims.
func parcelOf(label string, claim claimcheck.Claim) (parcel, error) {
	body, err := claim.Encode()
	if err != nil {
		return parcel{}, fmt.Errorf("%s: %s", shown(label), detail(err))
	}
	work, err := claim.WorkID()
	if err != nil {
		return parcel{}, fmt.Errorf("%s: %s", shown(label), detail(err))
	}
	result, err := claim.ResultName()
	if err != nil {
		return parcel{}, fmt.Errorf("%s: %s", shown(label), detail(err))
	}
	sum := sha256.Sum256([]byte(result))
	return parcel{
		receipt: receipt{
			Document: label, Tenant: claim.Tenant, Model: claim.Model, CorrelationID: claim.CorrelationID, Run: claim.Run,
			Blob: claim.Blob, ETag: claimcheck.CanonicalETag(claim.ETag), WorkID: work, Result: result,
		},
		message: message(hex.EncodeToString(sum[:]), claim.CorrelationID, body),
	}, nil
}

// etag looks up the ETag of a blob that is there.
func (c *client) etag(ctx context.Context, ref claimcheck.Reference, transport *http.Transport) (string, error) {
	account, err := c.storage(ref.Account, transport)
	if err != nil {
		return "", fmt.Errorf("open account: %w", err)
	}
	b := account.NewContainerClient(ref.Container).NewBlobClient(ref.Blob)
	switch {
	case ref.VersionID != "":
		b, err = b.WithVersionID(ref.VersionID)
	case ref.Snapshot != "":
		b, err = b.WithSnapshot(ref.Snapshot)
	}
	if err != nil {
		return "", fmt.Errorf("open blob: %w", err)
	}
	properties, err := b.GetProperties(ctx, nil)
	if isNotFound(err) {
		return "", fmt.Errorf("%w: the blob %s is not in %s", errGone, shown(ref.Blob), ref.ContainerURL())
	}
	if err != nil {
		return "", blobAdvice(err, ref.ContainerURL(), "blob", roleReader)
	}
	if properties.ETag == nil {
		return "", errors.New("the blob has no ETag")
	}
	return claimcheck.CanonicalETag(string(*properties.ETag)), nil
}
