package blobtest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A folder holds one directory per account and container:
//
//	{account}/{container}/container.json
//	{account}/{container}/{hash of the blob's name}.json   its name, properties and which content is its
//	{account}/{container}/{hash}-{ETag}.content
//	.tmp/                                                  bodies on their way in
//
// Names become hashes because a blob's name may be longer than a file's, differ only in case, or climb out with "..".
// The rename of the .json is the moment a write becomes true: what a killed process leaves behind besides (temporary
// files, content that no .json names) is removed when the folder is next opened. Nothing is flushed to the device, so
// a folder survives the process and not a power cut. Uncommitted blocks are kept in memory only.

// record is a blob's .json.
type record struct {
	Name       string            `json:"name"`
	ETag       string            `json:"etag"`
	Created    time.Time         `json:"created"`
	Modified   time.Time         `json:"modified"`
	Size       int64             `json:"size"`
	Content    string            `json:"content"` // file name
	Properties properties        `json:"properties"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Blocks     []block           `json:"blocks,omitempty"`
	Tier       string            `json:"tier,omitempty"`
	CopyStatus string            `json:"copy_status,omitempty"`
}

// boxRecord is container.json.
type boxRecord struct {
	Name     string            `json:"name"`
	ETag     string            `json:"etag"`
	Modified time.Time         `json:"modified"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

const (
	boxFile    = "container.json"
	contentExt = ".content"
	tempDir    = ".tmp" // no account can be called so
)

func nameHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// writeTemp receives a body into a temporary file.
func (s *Server) writeTemp(from io.Reader, length int64) (_ content, err error) {
	dir := filepath.Join(s.Dir, tempDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return content{}, fmt.Errorf("create folder: %w", err)
	}
	f, err := os.CreateTemp(dir, "body-*")
	if err != nil {
		return content{}, fmt.Errorf("create temporary file: %w", err)
	}
	_, err = io.CopyN(f, from, length)
	if err = errors.Join(err, f.Close()); err != nil {
		return content{}, errors.Join(err, os.Remove(f.Name()))
	}
	return content{file: f.Name(), size: length}, nil
}

// discard removes content that is not, or no longer, a blob's. A reader that has it open is not disturbed; where the
// system will not remove an open file, opening the folder later does.
func (s *Server) discard(c content) {
	if c.file != "" {
		_ = os.Remove(c.file)
	}
}

func (s *Server) boxDir(account, container string) string {
	return filepath.Join(s.Dir, account, container)
}

func (s *Server) saveBox(account string, b *box) error {
	if s.Dir == "" {
		return nil
	}
	dir := s.boxDir(account, b.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create container folder: %w", err)
	}
	return s.writeJSON(filepath.Join(dir, boxFile), boxRecord{b.name, b.etag, b.modified, b.metadata})
}

func (s *Server) removeBox(account, container string) error {
	if s.Dir == "" {
		return nil
	}
	// The record goes first: without it the rest is debris, and what cannot be removed now is when the name is used again.
	dir := s.boxDir(account, container)
	if err := os.Remove(filepath.Join(dir, boxFile)); err != nil {
		return fmt.Errorf("remove container: %w", err)
	}
	_ = os.RemoveAll(dir)
	return nil
}

// clearBox removes what an earlier container of the name may have left.
func (s *Server) clearBox(account, container string) error {
	if s.Dir == "" {
		return nil
	}
	if err := os.RemoveAll(s.boxDir(account, container)); err != nil {
		return fmt.Errorf("clear container folder: %w", err)
	}
	return nil
}

// saveBlob writes what makes b its name's state and, if its content is still a temporary file, gives that its place.
func (s *Server) saveBlob(account, container string, b *blob) error {
	if s.Dir == "" {
		return nil
	}
	dir := s.boxDir(account, container)
	if b.content.file == "" || filepath.Dir(b.content.file) != dir {
		path := filepath.Join(dir, nameHash(b.name)+"-"+strings.Trim(b.etag, `"`)+contentExt)
		if err := s.placeContent(b.content, path); err != nil {
			return err
		}
		b.content = content{file: path, size: b.content.size}
	}
	return s.writeJSON(filepath.Join(dir, nameHash(b.name)+".json"), record{
		Name: b.name, ETag: b.etag, Created: b.created, Modified: b.modified,
		Size: b.content.size, Content: filepath.Base(b.content.file), Properties: b.properties,
		Metadata: b.metadata, Blocks: b.blocks, Tier: b.tier, CopyStatus: b.copyStatus,
	})
}

func (s *Server) placeContent(c content, path string) error {
	if c.file != "" {
		if err := os.Rename(c.file, path); err != nil {
			return fmt.Errorf("place content: %w", err)
		}
		return nil
	}
	if err := os.WriteFile(path, c.data, 0o600); err != nil {
		return fmt.Errorf("write content: %w", err)
	}
	return nil
}

func (s *Server) removeBlob(account, container string, b *blob) error {
	if s.Dir == "" {
		return nil
	}
	err := os.Remove(filepath.Join(s.boxDir(account, container), nameHash(b.name)+".json"))
	if err != nil {
		return fmt.Errorf("remove blob: %w", err)
	}
	s.discard(b.content)
	return nil
}

// writeJSON replaces a file in one step.
func (s *Server) writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("place record: %w", err)
	}
	return nil
}

// Open reads the folder, if there is one. Requests do so by themselves when they are the first to need it and are
// answered 500 if it cannot be read; call Open to learn of that early.
func (s *Server) Open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open()
}

// open is Open with s.mu held. Its result is final for this Server.
func (s *Server) open() error {
	if s.opened || s.Dir == "" {
		return s.openErr
	}
	s.opened = true
	s.openErr = s.load()
	return s.openErr
}

func (s *Server) load() error {
	if err := os.RemoveAll(filepath.Join(s.Dir, tempDir)); err != nil {
		return fmt.Errorf("clear temporary files: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(globEscape(s.Dir), "*", "*", boxFile))
	if err != nil {
		return fmt.Errorf("list folder: %w", err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		if err := s.loadBox(filepath.Base(filepath.Dir(dir)), dir); err != nil {
			return fmt.Errorf("load container: %w", err)
		}
	}
	return nil
}

// globEscape makes a path match itself.
func globEscape(path string) string {
	return strings.NewReplacer(`[`, `[[]`, `*`, `[*]`, `?`, `[?]`).Replace(path)
}

func (s *Server) loadBox(account, dir string) error {
	var br boxRecord
	if err := readJSON(filepath.Join(dir, boxFile), &br); err != nil {
		return err
	}
	b := &box{
		name: br.Name, etag: br.ETag, modified: br.Modified, metadata: br.Metadata,
		blobs: make(map[string]*blob), staged: make(map[string]*staging),
	}
	s.sawETag(br.ETag)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list container: %w", err)
	}
	named := map[string]bool{boxFile: true}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" || e.Name() == boxFile {
			continue
		}
		var rec record
		if err := readJSON(filepath.Join(dir, e.Name()), &rec); err != nil {
			return err
		}
		// A record cannot point outside its folder, whoever edited it.
		path := filepath.Join(dir, filepath.Base(rec.Content))
		info, err := os.Stat(path)
		if err != nil || info.Size() != rec.Size {
			return fmt.Errorf("content of record %s is missing or has another size: %w", e.Name(), errors.Join(err, fs.ErrInvalid))
		}
		named[e.Name()], named[filepath.Base(path)] = true, true
		s.sawETag(rec.ETag)
		b.blobs[rec.Name] = &blob{
			name: rec.Name, etag: rec.ETag, created: rec.Created, modified: rec.Modified,
			content: content{file: path, size: rec.Size}, properties: rec.Properties,
			metadata: rec.Metadata, blocks: rec.Blocks, tier: rec.Tier, copyStatus: rec.CopyStatus,
		}
	}
	for _, e := range entries {
		if !named[e.Name()] && (filepath.Ext(e.Name()) == contentExt || filepath.Ext(e.Name()) == ".new") {
			_ = os.Remove(filepath.Join(dir, e.Name())) // debris; harmless if it stays
		}
	}
	if s.boxes == nil {
		s.boxes = make(map[boxKey]*box)
	}
	s.boxes[boxKey{account, br.Name}] = b
	return nil
}

// sawETag keeps new ETags above all that a folder has ever given out.
func (s *Server) sawETag(etag string) {
	if ticks, err := strconv.ParseUint(strings.TrimPrefix(strings.Trim(etag, `"`), "0x"), 16, 64); err == nil {
		s.lastTicks = max(s.lastTicks, ticks)
	}
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode record %s: %w", filepath.Base(path), err)
	}
	return nil
}
