package blobtest

import (
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Server is a Blob endpoint. The zero value works: in memory, one account (DevAccount with DevKey), any bearer token.
// Set the exported fields before the first request and leave them alone after it. A Server must not be copied.
//
// A request whose host reads {account}.blob.… is host style; for any other host the account is the first segment of
// the path, as with the emulators of Azure Storage.
type Server struct {
	// Dir is a folder that keeps everything across restarts of the process. One Server per folder at a time.
	// Default: "", in memory.
	Dir string

	// Accounts maps the name of each account to its key in Base64.
	// Default: DevAccount with DevKey.
	Accounts map[string]string

	// Token is the one bearer token that is accepted; another is answered 401 InvalidAuthenticationInfo.
	// Default: "", any token that is not empty.
	Token string

	// BearerNeedsTLS refuses bearer tokens over plain HTTP, as the service does.
	// Default: false.
	BearerNeedsTLS bool

	// AllowSAS lets requests with a shared access signature through without verifying it.
	// Default: false, they are answered 403 AuthenticationFailed.
	AllowSAS bool

	// MaxBody is the largest request body in bytes; a larger one is answered 413 RequestBodyTooLarge.
	// Default: 256 MiB.
	MaxBody int64

	// Fault is asked for every request before it is looked at further. It may be called by many goroutines at once.
	// Default: nil, no faults.
	Fault func(Request) *Fault

	// Observe is told of every request after its answer was written or given up. It may be called by many goroutines
	// at once, delays the connection it is called for, and may call the Server's methods.
	// Default: nil.
	Observe func(Event)

	mu        sync.Mutex
	opened    bool
	openErr   error
	boxes     map[boxKey]*box
	lastTicks uint64
	creates   map[blobKey]int
	attempts  map[attemptKey]int
	stats     Stats
	flying    map[*flight]struct{}
	changed   chan struct{} // closed at the next change; nil while nobody waits
	listener  *listening
}

type blobKey struct{ account, container, blob string }

type attemptKey struct {
	operation Operation
	blobKey
}

// flight is a request that is being served.
type flight struct {
	target target
	since  time.Time
}

// response is an answer before it is written. Handlers return it rather than write, so that a fault can still take
// its place after the effect.
type response struct {
	status int
	code   string // of an error
	header http.Header
	length int64
	body   io.ReadCloser // nil = none
}

func newResponse(status int) *response {
	return &response{status: status, header: make(http.Header)}
}

func (resp *response) close() {
	if resp.body != nil {
		_ = resp.body.Close() // read only
	}
}

// key returns an account's key, and false if there is no such account.
func (s *Server) key(account string) (string, bool) {
	if s.Accounts == nil {
		return DevKey, account == DevAccount
	}
	key, ok := s.Accounts[account]
	return key, ok
}

func (s *Server) maxBody() int64 {
	if s.MaxBody == 0 {
		return 256 << 20
	}
	return s.MaxBody
}

// ServeHTTP serves one request. A fault that cuts the connection panics with http.ErrAbortHandler, as net/http
// provides for.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	t, bad := route(r)
	fl := s.takeOff(t, start)
	received := &countingReader{from: r.Body}
	r.Body = received
	ev := Event{Operation: t.operation, Account: t.account, Container: t.container, Blob: t.blob, Start: start}
	defer func() {
		ev.Received = received.n
		ev.Duration = time.Since(start)
		s.land(fl, ev)
	}()

	requestID := newRequestID()
	fault := s.fault(r, t)
	ev.Faulted = fault != nil
	if fault != nil && fault.Delay > 0 && !s.wait(r, fault.Delay) {
		s.count(t.operation, 0)
		panic(http.ErrAbortHandler)
	}
	if fault.replaces() && !fault.AfterEffect {
		s.answerFault(w, r, t, fault, requestID, &ev)
		return
	}
	resp := s.respond(r, t, bad, requestID)
	if fault.replaces() {
		resp.close()
		s.answerFault(w, r, t, fault, requestID, &ev)
		return
	}
	ev.Status, ev.Code = resp.status, resp.code
	s.count(t.operation, resp.status)
	cut := int64(-1)
	if fault != nil && fault.CutBody > 0 {
		cut = fault.CutBody
	}
	s.write(w, r, resp, requestID, cut, &ev)
}

// respond does what the request asks for.
func (s *Server) respond(r *http.Request, t target, bad *failure, requestID string) *response {
	now := time.Now().UTC()
	resp, f := (*response)(nil), bad
	if f == nil {
		f = s.authorize(r, t, now)
	}
	if f == nil {
		resp, f = s.dispatch(r, t, now)
	}
	if f != nil {
		return f.response(requestID, now)
	}
	return resp
}

func (s *Server) dispatch(r *http.Request, t target, now time.Time) (*response, *failure) {
	if err := s.Open(); err != nil {
		return nil, broken(err)
	}
	if t.query.Has("versionid") || t.query.Has("snapshot") {
		return nil, failed("BlobNotFound")
	}
	switch t.operation {
	case OperationListContainers:
		return s.listContainers(t)
	case OperationGetAccountInformation:
		return accountInformation(), nil
	case OperationCreateContainer:
		return s.createContainer(r, t, now)
	case OperationDeleteContainer:
		return s.deleteContainer(r, t)
	case OperationGetContainerProperties:
		return s.containerProperties(t)
	case OperationSetContainerMetadata:
		return s.setContainerMetadata(r, t, now)
	case OperationListBlobs:
		return s.listBlobs(t)
	case OperationPutBlob:
		return s.putBlob(r, t, now)
	case OperationPutBlock:
		return s.putBlock(r, t)
	case OperationPutBlockList:
		return s.putBlockList(r, t, now)
	case OperationGetBlockList:
		return s.getBlockList(r, t)
	case OperationGetBlob:
		return s.getBlob(r, t)
	case OperationGetBlobProperties, OperationGetBlobMetadata:
		return s.getBlobProperties(r, t)
	case OperationSetBlobMetadata, OperationSetBlobProperties, OperationSetBlobTier:
		return s.updateBlob(r, t, now)
	case OperationDeleteBlob:
		return s.deleteBlob(r, t)
	}
	return nil, failed("NotImplemented")
}

// broken is the answer when the folder cannot be read or written.
func broken(err error) *failure {
	f := failed("InternalError")
	f.message += " " + err.Error()
	return f
}

// write sends resp and notes in ev how many bytes of its body went out. With cut >= 0 the connection is cut after so
// many.
func (s *Server) write(w http.ResponseWriter, r *http.Request, resp *response, requestID string, cut int64, ev *Event) {
	defer resp.close()
	h := w.Header()
	maps.Copy(h, resp.header)
	h.Set("Server", "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0")
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h.Set("x-ms-request-id", requestID)
	h.Set("x-ms-version", version(r))
	if id := r.Header.Get("x-ms-client-request-id"); id != "" {
		h.Set("x-ms-client-request-id", id)
	}
	if resp.status != http.StatusNotModified {
		h.Set("Content-Length", strconv.FormatInt(resp.length, 10))
	}
	w.WriteHeader(resp.status)
	if resp.body == nil || r.Method == http.MethodHead {
		return
	}
	if cut >= 0 && cut < resp.length {
		ev.Sent, _ = io.CopyN(w, resp.body, cut)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	n, err := io.Copy(w, resp.body)
	ev.Sent = n
	if err != nil || n < resp.length {
		panic(http.ErrAbortHandler) // the client is gone, or the content is; a short answer must not look whole
	}
}

// version is the service version the answer is in: the one the client asked for.
func version(r *http.Request) string {
	if v := r.Header.Get("x-ms-version"); v != "" {
		return v
	}
	return "2024-08-04"
}

func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (s *Server) takeOff(t target, start time.Time) *flight {
	fl := &flight{target: t, since: start}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying == nil {
		s.flying = make(map[*flight]struct{})
	}
	s.flying[fl] = struct{}{}
	return fl
}

func (s *Server) land(fl *flight, ev Event) {
	s.mu.Lock()
	delete(s.flying, fl)
	s.stats.Received += ev.Received
	s.stats.Sent += ev.Sent
	s.wake()
	s.mu.Unlock()
	if s.Observe != nil {
		s.Observe(ev)
	}
}

// count enters an answer in the statistics before the client can see it, so that a test that has its answer finds it
// counted. Status 0 is a connection that was cut.
func (s *Server) count(op Operation, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.Requests == nil {
		s.stats.Requests = make(map[Operation]map[int]int)
	}
	if s.stats.Requests[op] == nil {
		s.stats.Requests[op] = make(map[int]int)
	}
	s.stats.Requests[op][status]++
}

type countingReader struct {
	from io.ReadCloser
	n    int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *countingReader) Close() error { return c.from.Close() }
