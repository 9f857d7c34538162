package blobtest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxBlocks  = 50_000 // committed blocks of one blob ("Put Block List")
	maxBlockID = 64     // bytes before Base64 ("Put Block")
)

func (s *Server) putBlock(r *http.Request, t target) (*response, *failure) {
	id := t.query.Get("blockid")
	if id == "" {
		return nil, failed("MissingRequiredQueryParameter")
	}
	raw, err := base64.StdEncoding.DecodeString(id)
	if err != nil || len(raw) > maxBlockID {
		return nil, failed("InvalidQueryParameterValue")
	}
	if r.Header.Get("x-ms-copy-source") != "" {
		return nil, failed("NotImplemented")
	}
	got, f := s.receive(r, false)
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.box(t.account, t.container)
	if in == nil {
		return nil, failed("ContainerNotFound")
	}
	g := in.staged[t.blob]
	if g == nil {
		g = &staging{}
	}
	if !g.sameLength(id, in.blobs[t.blob]) {
		return nil, failed("InvalidBlobOrBlock")
	}
	g.put(block{ID: id, Size: got.content.size, data: got.content.data})
	in.staged[t.blob] = g
	resp := newResponse(http.StatusCreated)
	resp.header.Set("Content-MD5", got.md5Base64())
	if got.crc64 != nil {
		resp.header.Set("x-ms-content-crc64", base64.StdEncoding.EncodeToString(got.crc64))
	}
	resp.header.Set("x-ms-request-server-encrypted", "true")
	return resp, nil
}

// sameLength: all block ids of one blob must be of one length.
func (g *staging) sameLength(id string, committed *blob) bool {
	if len(g.blocks) > 0 {
		return len(g.blocks[0].ID) == len(id)
	}
	return committed == nil || len(committed.blocks) == 0 || len(committed.blocks[0].ID) == len(id)
}

// blockRef is one line of a block list: where to look for a block, and which.
type blockRef struct{ list, id string }

// parseBlockList reads the body of Put Block List. The order of the lines is the order of the content, whatever their
// kinds.
func parseBlockList(data []byte) ([]blockRef, error) {
	dec := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))
	var refs []blockRef
	inside := false
	for {
		tok, err := dec.Token()
		if err != nil {
			return nil, err // io.EOF too: the document ends before its BlockList does
		}
		switch el := tok.(type) {
		case xml.StartElement:
			list := el.Name.Local
			if !inside && list == "BlockList" {
				inside = true
				continue
			}
			if !inside || list != "Committed" && list != "Uncommitted" && list != "Latest" {
				return nil, errors.New("unknown element in a block list")
			}
			var id string
			if err := dec.DecodeElement(&id, &el); err != nil {
				return nil, err
			}
			refs = append(refs, blockRef{list, strings.TrimSpace(id)})
		case xml.EndElement:
			return refs, nil
		}
	}
}

func (s *Server) putBlockList(r *http.Request, t target, now time.Time) (*response, *failure) {
	b, f := blobOf(r.Header, t.blob)
	if f != nil {
		return nil, f
	}
	b.properties.ContentType = cmp.Or(b.properties.ContentType, defaultContentType)
	cond, f := parseConditions(r.Header)
	if f != nil {
		return nil, f
	}
	got, f := s.receive(r, false)
	if f != nil {
		return nil, f
	}
	refs, err := parseBlockList(got.content.data)
	if err != nil {
		return nil, failed("InvalidXmlDocument")
	}
	if len(refs) > maxBlocks {
		return nil, failed("BlockListTooLong")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.box(t.account, t.container)
	if in == nil {
		return nil, failed("ContainerNotFound")
	}
	old := in.blobs[t.blob]
	if f := cond.writeBlob(old); f != nil {
		return nil, f
	}
	data, blocks, f := assemble(refs, in.staged[t.blob], old)
	if f != nil {
		return nil, f
	}
	b.blocks = blocks
	b.content = content{data: data, size: int64(len(data))}
	if err := s.commit(t.account, in, b, now); err != nil {
		return nil, broken(err)
	}
	delete(in.staged, t.blob)
	s.created(t)
	s.wake()
	resp := stamped(http.StatusCreated, b.etag, b.modified)
	resp.header.Set("x-ms-request-server-encrypted", "true")
	return resp, nil
}

// assemble puts the content together from staged blocks and those the blob already has.
func assemble(refs []blockRef, g *staging, old *blob) ([]byte, []block, *failure) {
	var had []byte
	if old != nil {
		var err error
		if had, err = old.content.bytes(); err != nil {
			return nil, nil, broken(err)
		}
	}
	var data bytes.Buffer
	blocks := make([]block, 0, len(refs))
	for _, ref := range refs {
		part, ok := []byte(nil), false
		if ref.list != "Committed" && g != nil {
			var staged block
			staged, ok = g.find(ref.id)
			part = staged.data
		}
		if !ok && ref.list != "Uncommitted" {
			part, ok = old.block(ref.id, had)
		}
		if !ok {
			return nil, nil, failed("InvalidBlockList")
		}
		data.Write(part)
		blocks = append(blocks, block{ID: ref.id, Size: int64(len(part))})
	}
	return data.Bytes(), blocks, nil
}

// block cuts a committed block out of the content.
func (b *blob) block(id string, data []byte) ([]byte, bool) {
	if b == nil {
		return nil, false
	}
	offset := int64(0)
	for _, k := range b.blocks {
		if k.ID == id {
			return data[offset : offset+k.Size], true
		}
		offset += k.Size
	}
	return nil, false
}

func (s *Server) getBlockList(r *http.Request, t target) (*response, *failure) {
	list := cmp.Or(t.query.Get("blocklisttype"), "committed")
	if list != "committed" && list != "uncommitted" && list != "all" {
		return nil, failed("InvalidQueryParameterValue")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.box(t.account, t.container)
	if in == nil {
		return nil, failed("ContainerNotFound")
	}
	b, g := in.blobs[t.blob], in.staged[t.blob]
	if b == nil && g == nil {
		return nil, failed("BlobNotFound")
	}
	resp := newResponse(http.StatusOK)
	resp.header.Set("x-ms-blob-content-length", "0")
	var committed, uncommitted []block
	if b != nil {
		resp = stamped(http.StatusOK, b.etag, b.modified)
		resp.header.Set("x-ms-blob-content-length", strconv.FormatInt(b.content.size, 10))
		committed = b.blocks
	}
	if g != nil {
		uncommitted = g.blocks
	}
	var out strings.Builder
	out.WriteString(xmlHeader + "<BlockList>")
	if list != "uncommitted" {
		writeBlocks(&out, "CommittedBlocks", committed)
	}
	if list != "committed" {
		writeBlocks(&out, "UncommittedBlocks", uncommitted)
	}
	out.WriteString("</BlockList>")
	resp.xml(out.String())
	return resp, nil
}

func writeBlocks(out *strings.Builder, element string, blocks []block) {
	out.WriteString("<" + element + ">")
	for _, b := range blocks {
		out.WriteString("<Block><Name>")
		text(out, b.ID)
		out.WriteString("</Name><Size>" + strconv.FormatInt(b.Size, 10) + "</Size></Block>")
	}
	out.WriteString("</" + element + ">")
}

// xml makes doc the body.
func (resp *response) xml(doc string) {
	resp.header.Set("Content-Type", "application/xml")
	resp.length = int64(len(doc))
	resp.body = io.NopCloser(strings.NewReader(doc))
}
