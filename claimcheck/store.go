package claimcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"millrace/internal/redact"
)

// maxResultRead bounds what Read takes into memory.
const maxResultRead = 64 << 20

// StoreOptions adjusts a Store. Nil is allowed.
type StoreOptions struct {
	// MaxDocument is the largest document in bytes: of the stored blob, of its decompressed form, and of its text as UTF-8.
	// Default: 4 MiB.
	MaxDocument int64
	// MissingTries is how often a blob that is not there, or whose copy has not finished, is looked for. Default: 3.
	MissingTries int
	// MissingWait is the time from the first of these tries to the last. Default: 2 s.
	MissingWait time.Duration
	// Connections is how many idle connections to each account are kept: as many as documents are worked on at once. With
	// fewer, some requests open a connection each. Default: 64.
	Connections int
	// Transport carries the requests of every account, and replaces Connections. Default: a transport of the Store's own.
	Transport http.RoundTripper
}

// Store reads documents from any number of storage accounts and writes results to one container. Documents are read whole
// and from one version of the blob; results are created whole and never overwritten. It is safe for concurrent use.
//
// It follows the references it is given: Policy.Check comes first.
type Store struct {
	open    Open
	opts    StoreOptions
	results *container.Client
	account string // "results:<account>"

	mu      sync.Mutex
	clients map[string]*service.Client // by Reference.Account
}

// NewStore returns a Store that writes results to the container at the URL results. It sends nothing.
func NewStore(results string, open Open, opts *StoreOptions) (*Store, error) {
	s := &Store{open: open, clients: make(map[string]*service.Client)}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.MaxDocument <= 0 {
		s.opts.MaxDocument = 4 << 20
	}
	if s.opts.MissingTries <= 0 {
		s.opts.MissingTries = 3
	}
	if s.opts.MissingWait <= 0 {
		s.opts.MissingWait = 2 * time.Second
	}
	if s.opts.Connections <= 0 {
		s.opts.Connections = 64
	}
	if s.opts.Transport == nil {
		s.opts.Transport = newTransport(s.opts.Connections)
	}
	ref, poisoned := parseContainer(results)
	if poisoned != nil {
		return nil, fmt.Errorf("open results container: %s", poisoned.Detail)
	}
	client, err := s.client(ref.Account)
	if err != nil {
		return nil, redact.Wrap("open results container", err)
	}
	s.results = client.NewContainerClient(ref.Container)
	s.account = "results:" + ref.AccountName()
	return s, nil
}

// Lookup returns the result of that name and whether there is one. A blob of that name that is no readable result counts
// as found, with an empty Outcome: the name is taken, and the work it stands for was done. The error is a
// *DependencyError or the context's.
func (s *Store) Lookup(ctx context.Context, name string) (*Result, bool, error) {
	body, err := s.readResult(ctx, name)
	if errors.Is(err, ErrNoResult) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	result, err := DecodeResult(body)
	if err != nil {
		return &Result{}, true, nil
	}
	return &result, true, nil
}

// Read returns the result of that name. The error is ErrNoResult, a *DependencyError, the context's, or says what is wrong
// with the blob.
func (s *Store) Read(ctx context.Context, name string) (*Result, error) {
	body, err := s.readResult(ctx, name)
	if err != nil {
		return nil, err
	}
	result, err := DecodeResult(body)
	if err != nil {
		return nil, err
	}
	return &result, nil
}

// Create writes the result under its name, which must be the one that follows from the result itself. It reports false,
// without an error, when a result is there already: the first one stays. After a lost reply the Store's own retry may find
// the result it has just written, so false means "there is one", not "somebody else's". The blob appears whole or not at
// all. The error is a *DependencyError, the context's, or says what is wrong with the result.
func (s *Store) Create(ctx context.Context, name string, result Result) (created bool, err error) {
	body, err := result.Encode()
	if err != nil {
		return false, err
	}
	if want, err := ResultName(result.Tenant, result.CorrelationID, result.WorkID); err != nil || name != want {
		return false, errors.New("create result: the name does not belong to this result")
	}
	_, err = s.results.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), &blockblob.UploadOptions{
		HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: to.Ptr("application/json")},
		AccessConditions: conditions(&blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}),
	})
	switch {
	case err == nil:
		return true, nil
	case bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet):
		return false, nil
	case bloberror.HasCode(err, bloberror.LeaseIDMissing, bloberror.BlobImmutableDueToPolicy):
		// Both speak of a blob that is there, but a lease can also be gone in a moment: only a look decides.
		if _, found, lookErr := s.Lookup(ctx, name); lookErr == nil && found {
			return false, nil
		}
	}
	return false, s.failure(ctx, s.account, "create result", err)
}

// Upload stores a document for a producer and returns its ETag in canonical form, to be pinned in the claim. An existing
// blob of that name is overwritten. An empty contentType is chosen by the name's extension, as a worker would. The error
// is a *DependencyError, the context's, or says that ref pins a version.
func (s *Store) Upload(ctx context.Context, ref Reference, body []byte, contentType string) (etag string, err error) {
	if ref.pinned() {
		return "", errors.New("upload document: a reference to a version cannot be written")
	}
	dependency := "blob:" + ref.AccountName()
	client, err := s.client(ref.Account)
	if err != nil {
		return "", s.failure(ctx, dependency, "open account", err)
	}
	if contentType == "" {
		contentType = contentTypeOf(ref.Blob)
	}
	resp, err := client.NewContainerClient(ref.Container).NewBlockBlobClient(ref.Blob).Upload(ctx,
		streaming.NopCloser(bytes.NewReader(body)),
		&blockblob.UploadOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr(contentType)}})
	if err != nil {
		return "", s.failure(ctx, dependency, "upload document", err)
	}
	return etagOf(resp.ETag), nil
}

// contentTypeOf is the inverse of kindOf's table of extensions.
func contentTypeOf(name string) string {
	kind, err := kindOf("", name)
	if err != nil {
		return "application/octet-stream"
	}
	switch kind {
	case KindMarkdown:
		return "text/markdown; charset=utf-8"
	case KindHTML:
		return "text/html; charset=utf-8"
	case KindJSON:
		return "application/json"
	case KindCSV:
		return "text/csv; charset=utf-8"
	}
	return "text/plain; charset=utf-8"
}

// readResult returns the bytes of a result.
func (s *Store) readResult(ctx context.Context, name string) ([]byte, error) {
	resp, err := s.results.NewBlobClient(name).DownloadStream(identityEncoding(ctx), nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil, ErrNoResult
	}
	if err != nil {
		return nil, s.failure(ctx, s.account, "read result", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResultRead+1))
	if err != nil {
		return nil, s.failure(ctx, s.account, "read result", err)
	}
	if len(body) > maxResultRead {
		return nil, fmt.Errorf("read result: the blob has more than %d bytes", maxResultRead)
	}
	return body, nil
}

// client returns the account's client, made on first use. The set of accounts is bounded by the policy.
func (s *Store) client(account string) (*service.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if client, ok := s.clients[account]; ok {
		return client, nil
	}
	client, err := s.open(account, clientOptions(s.opts.Transport))
	if err != nil {
		return nil, &openError{err}
	}
	s.clients[account] = client
	return client, nil
}

// openError marks a failure to make a client, which no waiting will mend.
type openError struct{ err error }

func (e *openError) Error() string { return e.err.Error() }
func (e *openError) Unwrap() error { return e.err }

// failure turns an error of the SDK into what the caller acts on: the context's error if that is why, else a
// *DependencyError.
func (s *Store) failure(ctx context.Context, dependency, verb string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", verb, context.Cause(ctx))
	}
	failure := &DependencyError{Dependency: dependency, Err: redact.Wrap(verb, err)}
	var response *azcore.ResponseError
	if errors.As(err, &response) {
		failure.Status, failure.Code = response.StatusCode, response.ErrorCode
		failure.Misconfigured = misconfigured(response)
		return failure
	}
	var opening *openError
	var final interface{ NonRetriable() } // what azcore and azidentity call a fault of the set-up, such as a missing role
	failure.Misconfigured = errors.As(err, &opening) || errors.As(err, &final)
	return failure
}

// misconfigured tells what waiting alone does not mend from what it does.
func misconfigured(response *azcore.ResponseError) bool {
	switch response.ErrorCode {
	case "PublicAccessNotPermitted", string(bloberror.ContainerDisabled):
		return true // with status 409, like faults that pass
	}
	switch code := response.StatusCode; code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests:
		return false
	default:
		return code < 500
	}
}

// identityEncoding keeps net/http from asking for gzip and undoing it, which would hide the stored length and the content
// encoding.
func identityEncoding(ctx context.Context) context.Context {
	return policy.WithHTTPHeader(ctx, http.Header{"Accept-Encoding": {"identity"}})
}

func conditions(modified *blob.ModifiedAccessConditions) *blob.AccessConditions {
	return &blob.AccessConditions{ModifiedAccessConditions: modified}
}

func etagOf(tag *azcore.ETag) string {
	if tag == nil {
		return ""
	}
	return CanonicalETag(string(*tag))
}
