package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFile bounds what is read into memory. What is larger could never be a document: the catalog's limit is far below.
const maxFile = 64 << 20

// leftOut is a file that could not be taken.
type leftOut struct {
	Document string `json:"document"`
	Reason   string `json:"reason"`
}

// folder finds documents on disk.
type folder struct {
	dir           string
	except        os.FileInfo // a folder below it that is not looked into, nil for none
	tenant, model string

	documents []document
	left      []leftOut
}

// readFolder lists the files below dir in the order of their names. Links to files are followed. Links to folders,
// special files and everything hidden are no documents.
func readFolder(dir, tenant, model string, except os.FileInfo) (*folder, error) {
	root, err := filepath.EvalSymlinks(dir) // the walk does not follow a link, not even its start
	if err != nil {
		return nil, fmt.Errorf("read documents: %w", err)
	}
	f := &folder{dir: root, except: except, tenant: tenant, model: model}
	if err := filepath.WalkDir(root, f.visit); err != nil {
		return nil, fmt.Errorf("read documents: %w", err)
	}
	slices.SortFunc(f.documents, func(a, b document) int { return strings.Compare(a.name, b.name) })
	return f, nil
}

// visit is a [fs.WalkDirFunc].
func (f *folder) visit(file string, d fs.DirEntry, err error) error {
	name, relErr := filepath.Rel(f.dir, file)
	if relErr != nil {
		return relErr
	}
	name = filepath.ToSlash(name)
	if err != nil {
		f.left = append(f.left, leftOut{name, reason(err)})
		return nil
	}
	hidden := strings.HasPrefix(d.Name(), ".") && file != f.dir
	switch {
	case d.IsDir() && (hidden || f.excepted(d)):
		return filepath.SkipDir
	case hidden || d.IsDir():
		return nil
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		f.left = append(f.left, leftOut{name, reason(err)})
	case !info.Mode().IsRegular():
	case info.Size() > maxFile:
		f.left = append(f.left, leftOut{name, fmt.Sprintf("larger than %d MiB", maxFile>>20)})
	default:
		f.documents = append(f.documents, document{
			name: name, tenant: f.tenant, model: f.model, size: info.Size(), sniff: true,
			read: func() ([]byte, error) { return os.ReadFile(file) },
		})
	}
	return nil
}

func (f *folder) excepted(d fs.DirEntry) bool {
	if f.except == nil {
		return false
	}
	info, err := d.Info()
	return err == nil && os.SameFile(info, f.except)
}

// reason is an error without the path, which stands beside it.
func reason(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}
