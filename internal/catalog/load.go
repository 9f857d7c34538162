package catalog

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// maxFileBytes bounds the catalog and each file it names. A Kubernetes ConfigMap holds no more than this altogether.
const maxFileBytes = 1 << 20

// Load reads the catalog at path and the files it names, which are relative to the catalog's folder. The error joins every *Problem.
//
// A ConfigMap is replaced by swapping a symbolic link that all of its files go through. Load follows the link once, so the catalog and
// its prompts come from the same revision.
func Load(path string) (*Catalog, error) {
	actual, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("load catalog: %w", err)
	}
	f, err := os.Open(actual)
	if err != nil {
		return nil, fmt.Errorf("load catalog: %w", err)
	}
	defer f.Close()
	data, err := readAll(f)
	if err != nil {
		return nil, fmt.Errorf("load catalog: %s: %w", path, err)
	}
	files := folders{os.DirFS(filepath.Dir(actual))}
	if visible := filepath.Dir(path); visible != filepath.Dir(actual) {
		files = append(files, os.DirFS(visible))
	}
	return Parse(data, files, path)
}

// folders is one folder laid over others: files beside a linked catalog are looked for where the link leads, then where it stands.
type folders []fs.FS

func (f folders) Open(name string) (fs.File, error) {
	for _, folder := range f[:len(f)-1] {
		file, err := folder.Open(name)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return f[len(f)-1].Open(name)
}

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, errors.New("is larger than 1 MiB")
	}
	return data, nil
}

// Parse reads a catalog from data, and the files it names from files. name is what problems call it.
func Parse(data []byte, files fs.FS, name string) (*Catalog, error) {
	if len(data) > maxFileBytes {
		return nil, &Problem{File: name, Message: "is larger than 1 MiB"}
	}
	r := &reader{tree: tree{file: name}, files: files, read: map[string][]byte{}, taken: map[string]string{}}
	c := r.catalog(r.parse(data))
	if err := join(r.problems); err != nil {
		return nil, err
	}
	r.read[""] = data
	c.Hash = hash(r.read)
	return c, nil
}

// file returns the content of a file named in the catalog. Two settings may name one file; it is read once.
func (r *reader) file(n node) ([]byte, bool) {
	name, ok := r.word(n)
	if !ok {
		return nil, false
	}
	if data, ok := r.read[name]; ok {
		return data, true
	}
	if !fs.ValidPath(name) {
		r.report(n, "must be a path relative to the catalog's folder, with / between names and without . or ..")
		return nil, false
	}
	f, err := r.files.Open(name)
	if err != nil {
		r.report(n, "%s cannot be read: %s", name, fileError(err))
		return nil, false
	}
	defer f.Close()
	data, err := readAll(f)
	if err != nil {
		r.report(n, "%s cannot be read: %s", name, fileError(err))
		return nil, false
	}
	r.read[name] = data
	return data, true
}

// fileError leaves out the absolute path that errors of the operating system carry.
func fileError(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "there is no such file in the catalog's folder"
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return oneLine(err)
}

func hash(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, part := range [][]byte{[]byte(name), files[name]} {
			_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
			h.Write(part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
