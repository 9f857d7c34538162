package claimcheck

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"millrace/internal/redact"
)

// bodyTries is how often a document is read from the start when its body breaks off.
const bodyTries = 3

// Fetch reads the document at ref. A non-empty etag pins its content: any other content, and a change of metadata alone,
// is superseded.
//
// The size is known before the body is read, and one buffer of that size holds it (a second one holds the text of gzip
// and of other charsets). A body that breaks off is read again from its start, never continued, so a text is never put
// together from two versions. A missing blob and an unfinished copy are looked for again within MissingWait.
//
// The error is a *DocumentError if this document can never be read, a *DependencyError if its account is in trouble or its
// copy is unfinished, or the context's.
func (s *Store) Fetch(ctx context.Context, ref Reference, etag string) (*Document, error) {
	client, err := s.blobClient(ref)
	if err != nil {
		return nil, s.failure(ctx, "blob:"+ref.AccountName(), "open account", err)
	}
	etag = CanonicalETag(etag)
	absent, broken := 0, 0
	for {
		doc, again, err := s.read(ctx, client, ref, etag)
		if err == nil {
			return doc, nil
		}
		pause := time.Duration(0)
		switch again {
		case againNever:
			return nil, err
		case againLater:
			if absent++; absent >= s.opts.MissingTries {
				return nil, err
			}
			pause = s.opts.MissingWait / time.Duration(s.opts.MissingTries-1)
		case againNow:
			if broken++; broken >= bodyTries {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("read document: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// again says whether the same read may give something else.
type again int

const (
	againNever again = iota // the error is the answer
	againLater              // the blob may appear, or its copy finish
	againNow                // the body broke off
)

func (s *Store) blobClient(ref Reference) (*blob.Client, error) {
	account, err := s.client(ref.Account)
	if err != nil {
		return nil, err
	}
	client := account.NewContainerClient(ref.Container).NewBlobClient(ref.Blob)
	switch {
	case ref.VersionID != "":
		client, err = client.WithVersionID(ref.VersionID)
	case ref.Snapshot != "":
		client, err = client.WithSnapshot(ref.Snapshot)
	}
	if err != nil {
		return nil, &openError{err}
	}
	return client, nil
}

// read makes one request. Everything that can be judged by its headers is judged before the body.
func (s *Store) read(ctx context.Context, client *blob.Client, ref Reference, etag string) (*Document, again, error) {
	options := &blob.DownloadStreamOptions{}
	if etag != "" {
		options.AccessConditions = conditions(&blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(`"` + etag + `"`))})
	}
	resp, err := client.DownloadStream(identityEncoding(ctx), options)
	if err != nil {
		again, err := s.readFailure(ctx, ref, err)
		return nil, again, err
	}
	defer resp.Body.Close()

	dependency := "blob:" + ref.AccountName()
	doc := &Document{ContentType: value(resp.ContentType), ETag: etagOf(resp.ETag)}
	if etag != "" && doc.ETag != etag {
		return nil, againNever, superseded()
	}
	if resp.ContentLength == nil {
		return nil, againNever, &DependencyError{
			Dependency: dependency, Misconfigured: true, Status: http.StatusOK,
			Err: redact.Error(errors.New("read document: the reply has no content length: something between changes replies")),
		}
	}
	doc.Size = *resp.ContentLength
	if value(resp.CopyStatus) == blob.CopyStatusTypePending {
		return nil, againLater, &DependencyError{
			Dependency: dependency, Status: http.StatusOK, Code: "CopyPending",
			Err: redact.Error(errors.New("read document: the blob is still being copied")),
		}
	}
	if doc.Size == 0 {
		return nil, againNever, unreadable(ReasonEmptyDocument, "the blob has no bytes")
	}
	if doc.Size > s.opts.MaxDocument {
		return nil, againNever, unreadable(ReasonTooLarge, "the blob has %d bytes, more than the limit of %d", doc.Size, s.opts.MaxDocument)
	}
	kind, bad := kindOf(doc.ContentType, ref.Blob)
	if bad != nil {
		return nil, againNever, bad
	}
	doc.Kind = kind

	var raw strings.Builder // the only buffer: its string is the text, without a copy
	raw.Grow(int(doc.Size))
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(&raw, sum), resp.Body, doc.Size); err != nil {
		return nil, againNow, s.failure(ctx, dependency, "read document", err)
	}
	doc.SHA256 = hex.EncodeToString(sum.Sum(nil))
	_, charset := mediaType(doc.ContentType)
	if doc.Text, bad = decodeText(raw.String(), value(resp.ContentEncoding), charset, s.opts.MaxDocument); bad != nil {
		return nil, againNever, bad
	}
	return doc, againNever, nil
}

// readFailure tells a fault of this document from a fault of its account.
func (s *Store) readFailure(ctx context.Context, ref Reference, err error) (again, error) {
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		return againLater, unreadable(ReasonBlobMissing, "there is no such blob")
	case bloberror.HasCode(err, bloberror.BlobArchived):
		return againNever, unreadable(ReasonBlobArchived, "the blob is in the archive tier: rehydrate it and send a new run")
	case bloberror.HasCode(err, bloberror.BlobBeingRehydrated):
		return againNever, unreadable(ReasonBlobArchived, "the blob is being rehydrated: send a new run when that is done")
	case bloberror.HasCode(err, bloberror.ConditionNotMet):
		return againNever, superseded()
	case ref.pinned() && bloberror.HasCode(err, bloberror.InvalidQueryParameterValue, bloberror.OutOfRangeQueryParameterValue):
		return againNever, unreadable(ReasonBlobMissing, "the service does not know such a version")
	}
	return againNever, s.failure(ctx, "blob:"+ref.AccountName(), "read document", err)
}

func superseded() *DocumentError {
	return &DocumentError{Outcome: OutcomeSuperseded, Reason: ReasonETagChanged, Detail: "the blob has changed since the claim was made"}
}

// value is what an optional header holds, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
