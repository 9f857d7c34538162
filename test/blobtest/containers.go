package blobtest

import (
	"net/http"
	"strings"
	"time"
)

func accountInformation() *response {
	resp := newResponse(http.StatusOK)
	resp.header.Set("x-ms-sku-name", "Standard_LRS")
	resp.header.Set("x-ms-account-kind", "StorageV2")
	resp.header.Set("x-ms-is-hns-enabled", "false")
	return resp
}

func (s *Server) createContainer(r *http.Request, t target, now time.Time) (*response, *failure) {
	metadata, f := metadataOf(r.Header)
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.box(t.account, t.container) != nil {
		return nil, failed("ContainerAlreadyExists")
	}
	b, err := s.newBox(t.account, t.container, metadata, now)
	if err != nil {
		return nil, broken(err)
	}
	s.wake()
	return stamped(http.StatusCreated, b.etag, b.modified), nil
}

func (s *Server) deleteContainer(r *http.Request, t target) (*response, *failure) {
	cond, f := parseConditions(r.Header)
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.box(t.account, t.container)
	if b == nil {
		return nil, failed("ContainerNotFound")
	}
	if f := cond.write(true, false, b.etag, b.modified); f != nil {
		return nil, f
	}
	if err := s.removeBox(t.account, t.container); err != nil {
		return nil, broken(err)
	}
	delete(s.boxes, boxKey{t.account, t.container})
	s.wake()
	return newResponse(http.StatusAccepted), nil
}

func (s *Server) containerProperties(t target) (*response, *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.box(t.account, t.container)
	if b == nil {
		return nil, failed("ContainerNotFound")
	}
	resp := stamped(http.StatusOK, b.etag, b.modified)
	resp.header.Set("x-ms-lease-status", "unlocked")
	resp.header.Set("x-ms-lease-state", "available")
	resp.header.Set("x-ms-has-immutability-policy", "false")
	resp.header.Set("x-ms-has-legal-hold", "false")
	setMetadata(resp.header, b.metadata)
	return resp, nil
}

func (s *Server) setContainerMetadata(r *http.Request, t target, now time.Time) (*response, *failure) {
	metadata, f := metadataOf(r.Header)
	if f != nil {
		return nil, f
	}
	cond, f := parseConditions(r.Header)
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.box(t.account, t.container)
	if b == nil {
		return nil, failed("ContainerNotFound")
	}
	if f := cond.write(true, false, b.etag, b.modified); f != nil {
		return nil, f
	}
	changed := *b
	changed.metadata, changed.etag, changed.modified = metadata, s.nextETag(now), now
	if err := s.saveBox(t.account, &changed); err != nil {
		return nil, broken(err)
	}
	*b = changed
	s.wake()
	return stamped(http.StatusOK, b.etag, b.modified), nil
}

// stamped is an answer with the ETag and time of what it is about.
func stamped(status int, etag string, modified time.Time) *response {
	resp := newResponse(status)
	resp.header.Set("ETag", etag)
	resp.header.Set("Last-Modified", modified.Format(http.TimeFormat))
	return resp
}

const (
	metadataPrefix = "X-Ms-Meta-"
	maxMetadata    = 8 << 10 // bytes of names and values ("Setting and retrieving properties and metadata")
)

// metadataOf reads x-ms-meta-* headers. net/http does not keep the case of a header's name, so names are lowered.
func metadataOf(h http.Header) (map[string]string, *failure) {
	var metadata map[string]string
	size := 0
	for header, values := range h {
		if !strings.HasPrefix(header, metadataPrefix) {
			continue
		}
		name := strings.ToLower(strings.TrimPrefix(header, metadataPrefix))
		if name == "" {
			return nil, failed("EmptyMetadataKey")
		}
		if !validMetadata(name) {
			return nil, failed("InvalidMetadata")
		}
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[name] = strings.Join(values, ",")
		size += len(name) + len(metadata[name])
	}
	if size > maxMetadata {
		return nil, failed("MetadataTooLarge")
	}
	return metadata, nil
}

// validMetadata: names are identifiers of C#. Only those of ASCII can be a header's name.
func validMetadata(name string) bool {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c == '_'
		digit := c >= '0' && c <= '9'
		if !letter && (!digit || i == 0) {
			return false
		}
	}
	return true
}

func setMetadata(h http.Header, metadata map[string]string) {
	for name, value := range metadata {
		h.Set(metadataPrefix+name, value)
	}
}
