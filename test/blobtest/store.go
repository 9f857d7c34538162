package blobtest

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"net/http"
	"os"
	"time"
)

// box is a container with what is in it. Everything in it is guarded by Server.mu.
type box struct {
	name     string
	etag     string
	modified time.Time
	metadata map[string]string
	blobs    map[string]*blob
	staged   map[string]*staging // by blob name: blocks put and not yet committed
}

// blob is one committed state of a blob. It is never changed: a write puts a new one in its place, so a reader goes on
// with the state it found.
type blob struct {
	name       string
	etag       string // quoted, as in the header
	created    time.Time
	modified   time.Time
	content    content
	properties properties
	metadata   map[string]string
	blocks     []block // as committed by Put Block List; nil after Put Blob
	tier       string  // as set; "" is Hot, inferred
	copyStatus string
}

// properties are the content headers a blob keeps.
type properties struct {
	ContentType        string `json:"content_type,omitempty"`
	ContentEncoding    string `json:"content_encoding,omitempty"`
	ContentLanguage    string `json:"content_language,omitempty"`
	ContentDisposition string `json:"content_disposition,omitempty"`
	CacheControl       string `json:"cache_control,omitempty"`
	ContentMD5         string `json:"content_md5,omitempty"` // Base64
}

// block is one committed or staged block.
type block struct {
	ID   string `json:"id"`
	Size int64  `json:"size"`
	data []byte // staged blocks only
}

// staging holds the uncommitted blocks of one name, in the order they came.
type staging struct {
	blocks []block
}

func (g *staging) find(id string) (block, bool) {
	for _, b := range g.blocks {
		if b.ID == id {
			return b, true
		}
	}
	return block{}, false
}

func (g *staging) put(b block) {
	for i := range g.blocks {
		if g.blocks[i].ID == b.ID {
			g.blocks[i] = b
			return
		}
	}
	g.blocks = append(g.blocks, b)
}

// content is a blob's bytes, in memory or in a file that is never written again.
type content struct {
	data []byte
	file string // path; "" = in memory
	size int64
}

// open gives the bytes from offset on, length of them.
func (c content) open(offset, length int64) (io.ReadCloser, error) {
	if c.file == "" {
		return io.NopCloser(bytes.NewReader(c.data[offset : offset+length])), nil
	}
	f, err := os.Open(c.file)
	if err != nil {
		return nil, fmt.Errorf("open content: %w", err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("seek content: %w", err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, length), f}, nil
}

// bytes reads all of it.
func (c content) bytes() ([]byte, error) {
	r, err := c.open(0, c.size)
	if err != nil {
		return nil, err
	}
	data := make([]byte, c.size)
	_, err = io.ReadFull(r, data)
	return data, errors.Join(err, r.Close())
}

// body is a request's body, received whole.
type body struct {
	content content
	md5     []byte
	crc64   []byte // little-endian, as in x-ms-content-crc64
}

// crcPolynomial is Azure Storage's own CRC64, reflected as hash/crc64 wants it.
const crcPolynomial = 0x9A6C9329AC4BC9B5

// maxEager is the most memory set aside for a body before it has come: a length is a claim, not yet a fact.
const maxEager = 8 << 20

// receive reads the whole body before anything is decided, so that a request that breaks off has no effect.
// In a folder (toFile) the bytes go to a temporary file; the caller must commit or discard it.
func (s *Server) receive(r *http.Request, toFile bool) (body, *failure) {
	if r.ContentLength < 0 {
		return body{}, failed("MissingContentLengthHeader")
	}
	if r.ContentLength > s.maxBody() {
		return body{}, failed("RequestBodyTooLarge")
	}
	if r.Header.Get("x-ms-structured-body") != "" {
		return body{}, failed("NotImplemented")
	}
	digest := md5.New()
	crc := crc64.New(crc64.MakeTable(crcPolynomial))
	var sums io.Writer = digest
	wantCRC := r.Header.Get("x-ms-content-crc64")
	if wantCRC != "" {
		sums = io.MultiWriter(digest, crc)
	}
	got, err := s.copyBody(io.TeeReader(r.Body, sums), r.ContentLength, toFile)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		f := failed("InvalidInput")
		f.message = "The request body is shorter than its Content-Length."
		return body{}, f
	}
	if err != nil {
		return body{}, broken(err)
	}
	b := body{content: got, md5: digest.Sum(nil)}
	if wantCRC != "" {
		sum := crc.Sum64()
		for range 8 {
			b.crc64 = append(b.crc64, byte(sum))
			sum >>= 8
		}
	}
	if f := b.check(r.Header.Get("Content-MD5"), wantCRC); f != nil {
		s.discard(b.content)
		return body{}, f
	}
	return b, nil
}

func (s *Server) copyBody(from io.Reader, length int64, toFile bool) (content, error) {
	if toFile && s.Dir != "" {
		return s.writeTemp(from, length)
	}
	if length <= maxEager {
		data := make([]byte, length)
		if _, err := io.ReadFull(from, data); err != nil {
			return content{}, err
		}
		return content{data: data, size: length}, nil
	}
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, from, length); err != nil {
		return content{}, err
	}
	return content{data: buf.Bytes(), size: length}, nil
}

// nextETag returns an ETag that this server has never given out, in the service's form: the ticks of .NET (100 ns since
// the year 1) in hexadecimal. s.mu is held.
func (s *Server) nextETag(t time.Time) string {
	const ticksTo1970 = 621355968000000000
	ticks := ticksTo1970 + uint64(t.UnixNano()/100)
	s.lastTicks = max(s.lastTicks+1, ticks)
	return fmt.Sprintf("\"0x%X\"", s.lastTicks)
}

// box finds a container. s.mu is held.
func (s *Server) box(account, container string) *box {
	return s.boxes[boxKey{account, container}]
}

type boxKey struct{ account, container string }

// newBox creates a container and, on a folder, its directory. s.mu is held.
func (s *Server) newBox(account, container string, metadata map[string]string, t time.Time) (*box, error) {
	b := &box{
		name:     container,
		etag:     s.nextETag(t),
		modified: t,
		metadata: metadata,
		blobs:    make(map[string]*blob),
		staged:   make(map[string]*staging),
	}
	if err := s.clearBox(account, container); err != nil {
		return nil, err
	}
	if err := s.saveBox(account, b); err != nil {
		return nil, err
	}
	if s.boxes == nil {
		s.boxes = make(map[boxKey]*box)
	}
	s.boxes[boxKey{account, container}] = b
	return b, nil
}

// commit makes b the state of its name, with a new ETag and time. Content that was received into a temporary file
// becomes a file of the store. s.mu is held.
func (s *Server) commit(account string, in *box, b *blob, t time.Time) error {
	old := in.blobs[b.name]
	b.etag = s.nextETag(t)
	b.modified = t
	b.created = t
	if old != nil {
		b.created = old.created
	}
	if err := s.saveBlob(account, in.name, b); err != nil {
		return err
	}
	in.blobs[b.name] = b
	if old != nil && old.content.file != b.content.file {
		s.discard(old.content)
	}
	return nil
}
