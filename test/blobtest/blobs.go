package blobtest

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const defaultContentType = "application/octet-stream"

// maxRangeMD5 is the longest range whose MD5 the service computes ("Get Blob").
const maxRangeMD5 = 4 << 20

func (s *Server) putBlob(r *http.Request, t target, now time.Time) (*response, *failure) {
	switch kind := r.Header.Get("x-ms-blob-type"); {
	case r.Header.Get("x-ms-copy-source") != "":
		return nil, failed("NotImplemented")
	case kind == "":
		return nil, failed("MissingRequiredHeader")
	case kind != "BlockBlob":
		return nil, failed("NotImplemented")
	}
	b, f := blobOf(r.Header, t.blob)
	if f != nil {
		return nil, f
	}
	cond, f := parseConditions(r.Header)
	if f != nil {
		return nil, f
	}
	got, f := s.receive(r, true)
	if f != nil {
		return nil, f
	}
	if given := b.properties.ContentMD5; given != "" && given != got.md5Base64() {
		s.discard(got.content)
		return nil, failed("Md5Mismatch")
	}
	b.content = got.content
	b.properties.ContentType = cmp.Or(b.properties.ContentType, r.Header.Get("Content-Type"), defaultContentType)
	b.properties.ContentEncoding = cmp.Or(b.properties.ContentEncoding, r.Header.Get("Content-Encoding"))
	b.properties.ContentLanguage = cmp.Or(b.properties.ContentLanguage, r.Header.Get("Content-Language"))
	b.properties.ContentMD5 = got.md5Base64()

	if f := s.create(t, b, cond, now); f != nil {
		s.discard(got.content)
		return nil, f
	}
	resp := stamped(http.StatusCreated, b.etag, b.modified)
	resp.header.Set("Content-MD5", got.md5Base64())
	if got.crc64 != nil {
		resp.header.Set("x-ms-content-crc64", base64.StdEncoding.EncodeToString(got.crc64))
	}
	resp.header.Set("x-ms-request-server-encrypted", "true")
	return resp, nil
}

// create is the moment a Put Blob is decided and done.
func (s *Server) create(t target, b *blob, cond conditions, now time.Time) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.box(t.account, t.container)
	if in == nil {
		return failed("ContainerNotFound")
	}
	if f := cond.writeBlob(in.blobs[t.blob]); f != nil {
		return f
	}
	if err := s.commit(t.account, in, b, now); err != nil {
		return broken(err)
	}
	delete(in.staged, t.blob)
	s.created(t)
	s.wake()
	return nil
}

// writeBlob decides a write that creates or overwrites; old may be nil.
func (c conditions) writeBlob(old *blob) *failure {
	if old == nil {
		return c.write(false, true, "", time.Time{})
	}
	return c.write(true, true, old.etag, old.modified)
}

// blobOf is a blob with the properties that x-ms-blob-* headers give it.
func blobOf(h http.Header, name string) (*blob, *failure) {
	metadata, f := metadataOf(h)
	if f != nil {
		return nil, f
	}
	b := &blob{name: name, properties: propertiesOf(h), metadata: metadata, tier: h.Get("x-ms-access-tier")}
	if b.tier != "" && !validTier(b.tier) {
		return nil, failed("InvalidBlobTier")
	}
	return b, nil
}

func propertiesOf(h http.Header) properties {
	return properties{
		ContentType:        h.Get("x-ms-blob-content-type"),
		ContentEncoding:    h.Get("x-ms-blob-content-encoding"),
		ContentLanguage:    h.Get("x-ms-blob-content-language"),
		ContentDisposition: h.Get("x-ms-blob-content-disposition"),
		CacheControl:       h.Get("x-ms-blob-cache-control"),
		ContentMD5:         h.Get("x-ms-blob-content-md5"),
	}
}

func validTier(tier string) bool {
	return slices.Contains([]string{"Hot", "Cool", "Cold", "Archive"}, tier)
}

func (b body) md5Base64() string {
	return base64.StdEncoding.EncodeToString(b.md5)
}

// check compares the body with the sums the client sent along, in Base64 or "".
func (b body) check(contentMD5, contentCRC string) *failure {
	if contentMD5 != "" {
		sum, err := base64.StdEncoding.DecodeString(contentMD5)
		if err != nil || len(sum) != md5.Size {
			return failed("InvalidMd5")
		}
		if !bytes.Equal(sum, b.md5) {
			return failed("Md5Mismatch")
		}
	}
	if contentCRC != "" {
		sum, err := base64.StdEncoding.DecodeString(contentCRC)
		if err != nil {
			return failed("InvalidHeaderValue")
		}
		if !bytes.Equal(sum, b.crc64) {
			return failed("Crc64Mismatch")
		}
	}
	return nil
}

// find returns the blob a read is about, if its conditions hold. s.mu is held.
func (s *Server) find(t target, cond conditions) (*blob, *failure) {
	in := s.box(t.account, t.container)
	if in == nil {
		return nil, failed("ContainerNotFound")
	}
	b := in.blobs[t.blob]
	if b == nil {
		return nil, failed("BlobNotFound")
	}
	if f := cond.read(b.etag, b.modified); f != nil {
		return nil, f
	}
	return b, nil
}

func (s *Server) getBlob(r *http.Request, t target) (*response, *failure) {
	cond, f := parseConditions(r.Header)
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	defer s.mu.Unlock() // the content is opened under the lock; another write may remove its file
	b, f := s.find(t, cond)
	if f != nil {
		return nil, f
	}
	if b.tier == "Archive" {
		return nil, failed("BlobArchived")
	}
	offset, length, partial, f := rangeOf(r.Header, b.content.size)
	if f != nil {
		return nil, f
	}
	status := http.StatusOK
	if partial {
		status = http.StatusPartialContent
	}
	resp := b.response(status)
	if partial {
		resp.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, offset+length-1, b.content.size))
		resp.header.Del("Content-MD5") // it would speak of the whole
		if b.properties.ContentMD5 != "" {
			resp.header.Set("x-ms-blob-content-md5", b.properties.ContentMD5)
		}
	}
	if r.Header.Get("x-ms-range-get-content-md5") == "true" {
		if !partial || length > maxRangeMD5 {
			return nil, failed("InvalidHeaderValue")
		}
		sum, err := b.content.md5(offset, length)
		if err != nil {
			return nil, broken(err)
		}
		resp.header.Set("Content-MD5", sum)
	}
	var err error
	if resp.body, err = b.content.open(offset, length); err != nil {
		return nil, broken(err)
	}
	resp.length = length
	return resp, nil
}

func (c content) md5(offset, length int64) (string, error) {
	r, err := c.open(offset, length)
	if err != nil {
		return "", err
	}
	digest := md5.New()
	_, err = io.Copy(digest, r)
	return base64.StdEncoding.EncodeToString(digest.Sum(nil)), errors.Join(err, r.Close())
}

// rangeOf reads x-ms-range, or Range, in the two forms the service knows: bytes=start- and bytes=start-end
// ("Specifying the range header for Blob service operations"). An end past the blob's is cut; a start past it is 416.
func rangeOf(h http.Header, size int64) (offset, length int64, partial bool, f *failure) {
	value := cmp.Or(h.Get("x-ms-range"), h.Get("Range"))
	if value == "" {
		return 0, size, false, nil
	}
	spec, ok := strings.CutPrefix(value, "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	if !ok || !dash {
		return 0, 0, false, failed("InvalidHeaderValue")
	}
	start, err := strconv.ParseUint(first, 10, 63)
	if err != nil {
		return 0, 0, false, failed("InvalidHeaderValue")
	}
	end := uint64(max(size-1, 0))
	if last != "" {
		given, err := strconv.ParseUint(last, 10, 63)
		if err != nil || given < start {
			return 0, 0, false, failed("InvalidHeaderValue")
		}
		end = min(end, given)
	}
	if int64(start) >= size {
		f := failed("InvalidRange")
		f.header = http.Header{"Content-Range": {fmt.Sprintf("bytes */%d", size)}}
		return 0, 0, false, f
	}
	return int64(start), int64(end-start) + 1, true, nil
}

func (s *Server) getBlobProperties(r *http.Request, t target) (*response, *failure) {
	cond, f := parseConditions(r.Header)
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, f := s.find(t, cond)
	if f != nil {
		return nil, f
	}
	if t.operation == OperationGetBlobMetadata {
		resp := stamped(http.StatusOK, b.etag, b.modified)
		setMetadata(resp.header, b.metadata)
		return resp, nil
	}
	resp := b.response(http.StatusOK)
	resp.length = b.content.size
	return resp, nil
}

// response carries everything that Get Blob and Get Blob Properties say of a blob in headers.
func (b *blob) response(status int) *response {
	resp := stamped(status, b.etag, b.modified)
	h := resp.header
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", cmp.Or(b.properties.ContentType, defaultContentType))
	for name, value := range map[string]string{
		"Content-Encoding":    b.properties.ContentEncoding,
		"Content-Language":    b.properties.ContentLanguage,
		"Content-Disposition": b.properties.ContentDisposition,
		"Cache-Control":       b.properties.CacheControl,
		"Content-MD5":         b.properties.ContentMD5,
		"x-ms-copy-status":    b.copyStatus,
	} {
		if value != "" {
			h.Set(name, value)
		}
	}
	h.Set("x-ms-blob-type", "BlockBlob")
	h.Set("x-ms-creation-time", b.created.Format(http.TimeFormat))
	h.Set("x-ms-lease-status", "unlocked")
	h.Set("x-ms-lease-state", "available")
	h.Set("x-ms-server-encrypted", "true")
	h.Set("x-ms-access-tier", cmp.Or(b.tier, "Hot"))
	if b.tier == "" {
		h.Set("x-ms-access-tier-inferred", "true")
	}
	setMetadata(h, b.metadata)
	return resp
}

// updateBlob changes what a blob says of itself and leaves its content.
func (s *Server) updateBlob(r *http.Request, t target, now time.Time) (*response, *failure) {
	given, f := blobOf(r.Header, t.blob)
	if f != nil {
		return nil, f
	}
	if t.operation == OperationSetBlobTier && given.tier == "" {
		return nil, failed("MissingRequiredHeader")
	}
	cond, f := parseConditions(r.Header)
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, f := s.present(t, cond)
	if f != nil {
		return nil, f
	}
	b := *old
	switch t.operation {
	case OperationSetBlobMetadata:
		b.metadata = given.metadata
	case OperationSetBlobProperties:
		b.properties = given.properties
	case OperationSetBlobTier:
		return s.setTier(t, b, given.tier)
	}
	if err := s.commit(t.account, s.box(t.account, t.container), &b, now); err != nil {
		return nil, broken(err)
	}
	s.wake()
	return stamped(http.StatusOK, b.etag, b.modified), nil
}

// setTier does not change the ETag ("Set Blob Tier"). s.mu is held.
func (s *Server) setTier(t target, b blob, tier string) (*response, *failure) {
	b.tier = tier
	if err := s.saveBlob(t.account, t.container, &b); err != nil {
		return nil, broken(err)
	}
	s.box(t.account, t.container).blobs[b.name] = &b
	s.wake()
	return newResponse(http.StatusOK), nil
}

// present returns the blob that a write other than a creation is about, if its conditions hold. s.mu is held.
func (s *Server) present(t target, cond conditions) (*blob, *failure) {
	in := s.box(t.account, t.container)
	if in == nil {
		return nil, failed("ContainerNotFound")
	}
	b := in.blobs[t.blob]
	if b == nil {
		return nil, failed("BlobNotFound")
	}
	if f := cond.write(true, false, b.etag, b.modified); f != nil {
		return nil, f
	}
	return b, nil
}

func (s *Server) deleteBlob(r *http.Request, t target) (*response, *failure) {
	cond, f := parseConditions(r.Header)
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, f := s.present(t, cond)
	if f != nil {
		return nil, f
	}
	if err := s.removeBlob(t.account, t.container, b); err != nil {
		return nil, broken(err)
	}
	delete(s.box(t.account, t.container).blobs, t.blob)
	s.wake()
	resp := newResponse(http.StatusAccepted)
	resp.header.Set("x-ms-delete-type-permanent", "true")
	return resp, nil
}
