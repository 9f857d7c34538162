package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"millrace/claimcheck"
)

// submission is one claim that was sent.
type submission struct {
	document
	correlation string
	result      string // name of its result; "" for the claim that is broken on purpose
	sha256      string // of the document
}

// renaming is a document whose name no blob may have.
type renaming struct {
	Document string `json:"document"`
	Blob     string `json:"blob"`
}

// shipment is what was sent.
type shipment struct {
	claims  []submission
	renamed []renaming
	left    []leftOut
}

// tell notes what is not as it was asked for.
func (s *shipment) tell(on *screen) {
	var lines []string
	for _, l := range s.left {
		lines = append(lines, fmt.Sprintf("left out: %s: %s", shown(l.Document), l.Reason))
	}
	for _, r := range s.renamed {
		lines = append(lines, fmt.Sprintf("renamed: %s is no name for a blob; it is %s", shown(r.Document), r.Blob))
	}
	for i, line := range lines {
		if i == mostLines {
			on.note("… and %d more files left out or renamed; --json lists all", len(lines)-i)
			break
		}
		on.note("%s", line)
	}
}

// submit uploads the documents and sends their claims, as an upload pipeline does: with azblob, claimcheck and
// azservicebus. A document that cannot be read is left out. The samples come with one claim that carries its document
// inside, which the contract forbids.
func (l *lab) submit(ctx context.Context, documents []document, samples bool) (*shipment, error) {
	store, err := l.store()
	if err != nil {
		return nil, err
	}
	s := &shipment{}
	var messages []*azservicebus.Message
	for _, d := range documents {
		body, err := d.read()
		if err != nil {
			s.left = append(s.left, leftOut{d.name, reason(err)})
			continue
		}
		if samples && refusedSample.MatchString(d.name) {
			l.refuse(body)
		}
		ref, renamed := d.reference(l.accountURL(), inputContainer)
		if renamed {
			s.renamed = append(s.renamed, renaming{d.name, ref.Blob})
		}
		etag, err := store.Upload(ctx, ref, body, d.contentType(body))
		if err != nil {
			return nil, fmt.Errorf("upload %s: %w", shown(d.name), err)
		}
		claim := claimcheck.Claim{
			Tenant: d.tenant, Model: d.model, Blob: ref.String(), ETag: etag, CorrelationID: correlationID(d.name),
		}
		result, err := claim.ResultName()
		if err != nil {
			return nil, fmt.Errorf("claim for %s: %w", shown(d.name), err)
		}
		encoded, err := claim.Encode()
		if err != nil {
			return nil, fmt.Errorf("claim for %s: %w", shown(d.name), err)
		}
		sum := sha256.Sum256(body)
		s.claims = append(s.claims, submission{document: d, correlation: claim.CorrelationID, result: result, sha256: hex.EncodeToString(sum[:])})
		messages = append(messages, message(claim.CorrelationID, claim.CorrelationID, encoded))
	}
	if samples {
		broken := submission{document: document{name: "claim with the document inside", tenant: tenantHelp, model: aliasTickets}, correlation: "broken-claim"}
		s.claims = append(s.claims, broken)
		messages = append(messages, message(broken.correlation, broken.correlation,
			[]byte(`{"version":"1","tenant":"brightwater","model":"ticket-summary","document":"Ticket 88421: the whole text"}`)))
	}
	return s, l.send(ctx, messages)
}

func (l *lab) createContainers(ctx context.Context) error {
	account, err := service.NewClientFromConnectionString(l.blobs.ConnectionString(l.blobURL), nil)
	if err != nil {
		return fmt.Errorf("open blob store: %w", err)
	}
	for _, name := range []string{inputContainer, resultContainer} {
		if _, err := account.CreateContainer(ctx, name, nil); err != nil {
			return fmt.Errorf("create container %s: %w", name, err)
		}
	}
	return nil
}

func message(id, correlation string, body []byte) *azservicebus.Message {
	contentType := claimcheck.ContentType
	return &azservicebus.Message{MessageID: &id, CorrelationID: &correlation, ContentType: &contentType, Body: body}
}

// send sends messages in as few batches as they fit in.
func (l *lab) send(ctx context.Context, messages []*azservicebus.Message) (err error) {
	client, err := azservicebus.NewClientFromConnectionString(l.bus.ConnectionString(), nil)
	if err != nil {
		return fmt.Errorf("open service bus: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, client.Close(ctx))
	}()
	sender, err := client.NewSender(sampleQueue, nil)
	if err != nil {
		return fmt.Errorf("open sender: %w", err)
	}
	out := &outbox{sender: sender}
	for _, m := range messages {
		if err := out.add(ctx, m); err != nil {
			return fmt.Errorf("send claims: %w", err)
		}
	}
	if _, err := out.flush(ctx); err != nil {
		return fmt.Errorf("send claims: %w", err)
	}
	return nil
}

// store reads and writes the emulated account as a pipeline would.
func (l *lab) store() (*claimcheck.Store, error) {
	open := claimcheck.OpenConnectionString(l.blobs.ConnectionString(l.blobURL))
	return claimcheck.NewStore(l.accountURL()+"/"+resultContainer, open, nil)
}
