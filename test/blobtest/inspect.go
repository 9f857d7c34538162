package blobtest

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Blob is a blob as a test sees it.
type Blob struct {
	Name            string
	Body            []byte
	ETag            string // quoted, as in the header
	ContentType     string
	ContentEncoding string
	ContentMD5      string // Base64
	Metadata        map[string]string
	Tier            string // "" if never set
	Created         time.Time
	LastModified    time.Time
}

// PutOptions are the properties of a blob that Put writes.
type PutOptions struct {
	// ContentType is the blob's media type. Default: application/octet-stream.
	ContentType string

	// ContentEncoding is the blob's encoding, such as gzip. Default: none.
	ContentEncoding string

	// Metadata is the blob's metadata; names are lowered. Default: none.
	Metadata map[string]string

	// Tier is the access tier; reading the content of an "Archive" blob is answered 409 BlobArchived.
	// Default: "", which is answered as Hot, inferred.
	Tier string

	// CopyStatus is sent as x-ms-copy-status: "pending" is a blob that a copy is still filling.
	// Default: "", not sent.
	CopyStatus string
}

// Stats is how often each operation was answered with each status, and the bytes of all bodies.
// Status 0 counts connections that were cut without an answer.
type Stats struct {
	Requests map[Operation]map[int]int
	Received int64 // bytes of request bodies
	Sent     int64 // bytes of answers' bodies
}

// Count is how many requests had the operation and one of the statuses; without a status, all of them.
func (st Stats) Count(op Operation, status ...int) int {
	n := 0
	for got, times := range st.Requests[op] {
		if len(status) == 0 || slices.Contains(status, got) {
			n += times
		}
	}
	return n
}

// Total is the number of all requests.
func (st Stats) Total() int {
	n := 0
	for op := range st.Requests {
		n += st.Count(op)
	}
	return n
}

// Stats returns a copy of the statistics. A request is counted before its client sees the answer; its bytes are
// counted when it has been served.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Requests = make(map[Operation]map[int]int, len(s.stats.Requests))
	for op, byStatus := range s.stats.Requests {
		st.Requests[op] = maps.Clone(byStatus)
	}
	return st
}

// Creates is how often a client successfully created or overwrote the content of the name, by Put Blob or Put Block
// List. Put is not a client and is not counted; deleting the blob does not start the count anew.
func (s *Server) Creates(account, container, blob string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.creates[blobKey{account, container, blob}]
}

// created counts for Creates. s.mu is held.
func (s *Server) created(t target) {
	if s.creates == nil {
		s.creates = make(map[blobKey]int)
	}
	s.creates[blobKey{t.account, t.container, t.blob}]++
}

// Blob returns a copy of a blob, or false if there is none. It panics if the folder cannot be read.
func (s *Server) Blob(account, container, name string) (Blob, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustOpen()
	b := s.lookup(account, container, name)
	if b == nil {
		return Blob{}, false
	}
	data, err := b.content.bytes()
	if err != nil {
		panic("blobtest: " + err.Error())
	}
	return Blob{
		Name: b.name, Body: data, ETag: b.etag,
		ContentType: b.properties.ContentType, ContentEncoding: b.properties.ContentEncoding,
		ContentMD5: b.properties.ContentMD5, Metadata: maps.Clone(b.metadata), Tier: b.tier,
		Created: b.created, LastModified: b.modified,
	}, true
}

// List returns the names in a container that begin with prefix, in the order of List Blobs; none if there is no such
// container.
func (s *Server) List(account, container, prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustOpen()
	b := s.box(account, container)
	if b == nil {
		return nil
	}
	return b.names(prefix)
}

func (b *box) names(prefix string) []string {
	var names []string
	for name := range b.blobs {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Put writes a blob without a request, and its container if it is missing. It returns the new ETag, quoted.
// It panics if there is no such account, a name is not valid, or the folder cannot be written: these are mistakes
// of the test.
func (s *Server) Put(account, container, name string, body []byte, o *PutOptions) (etag string) {
	if o == nil {
		o = &PutOptions{}
	}
	if _, ok := s.key(account); !ok {
		panic("blobtest: put: no such account")
	}
	if !validContainer(container) {
		panic(fmt.Sprintf("blobtest: put: %q is no container's name: 3 to 63 of a-z, 0-9 and single hyphens", container))
	}
	if !validBlob(name) {
		panic("blobtest: put: a blob's name has 1 to 1,024 characters of valid UTF-8")
	}
	now := time.Now().UTC()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustOpen()
	in := s.box(account, container)
	if in == nil {
		var err error
		if in, err = s.newBox(account, container, nil, now); err != nil {
			panic("blobtest: " + err.Error())
		}
	}
	sum := md5.Sum(body)
	b := &blob{
		name:    name,
		content: content{data: slices.Clone(body), size: int64(len(body))},
		properties: properties{
			ContentType:     cmp.Or(o.ContentType, defaultContentType),
			ContentEncoding: o.ContentEncoding,
			ContentMD5:      base64.StdEncoding.EncodeToString(sum[:]),
		},
		metadata:   lowerKeys(o.Metadata),
		tier:       o.Tier,
		copyStatus: o.CopyStatus,
	}
	if err := s.commit(account, in, b, now); err != nil {
		panic("blobtest: " + err.Error())
	}
	delete(in.staged, name)
	s.wake()
	return b.etag
}

// Remove deletes a blob without a request and reports whether there was one. It panics if the folder cannot be
// written.
func (s *Server) Remove(account, container, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustOpen()
	b := s.lookup(account, container, name)
	if b == nil {
		return false
	}
	if err := s.removeBlob(account, container, b); err != nil {
		panic("blobtest: " + err.Error())
	}
	delete(s.box(account, container).blobs, name)
	s.wake()
	return true
}

// Await returns nil as soon as cond holds, and the context's cause if that ends first. cond is asked at once and then
// after every write and every request served; it may call the Server's methods. Nothing is polled.
func (s *Server) Await(ctx context.Context, cond func(*Server) bool) error {
	for {
		s.mu.Lock()
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if cond(s) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wake lets every Await look again. s.mu is held.
func (s *Server) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// lookup finds a blob, or nil. s.mu is held.
func (s *Server) lookup(account, container, name string) *blob {
	if b := s.box(account, container); b != nil {
		return b.blobs[name]
	}
	return nil
}

func (s *Server) mustOpen() {
	if err := s.open(); err != nil {
		panic("blobtest: " + err.Error())
	}
}

func lowerKeys(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	lowered := make(map[string]string, len(m))
	for k, v := range m {
		lowered[strings.ToLower(k)] = v
	}
	return lowered
}
