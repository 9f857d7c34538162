package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"

	"millrace/test/blobtest"
)

// resultFile matches the last segment of a result's name.
var resultFile = regexp.MustCompile(`^[0-9a-f]{64}\.json$`)

// openOut makes the folder for copies of the results and tries whether it can be written, before a run that may take
// minutes.
func openOut(dir string) (os.FileInfo, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, usageError{fmt.Errorf("--out %s: the folder cannot be made: %s", shown(dir), reason(err))}
	}
	probe, err := os.CreateTemp(dir, ".millrace-")
	if err != nil {
		return nil, usageError{fmt.Errorf("--out %s: the folder cannot be written to: %s", shown(dir), reason(err))}
	}
	probe.Close()
	if err := os.Remove(probe.Name()); err != nil {
		return nil, fmt.Errorf("remove probe: %w", err)
	}
	return os.Stat(dir)
}

// copyResults writes every result below dir under its own name and returns how many there were. A result that an earlier
// run left for the same document is replaced: emulators have other addresses each time, so its name differs.
func (l *lab) copyResults(dir string) (copied, replaced int, err error) {
	for _, name := range l.blobs.List(blobtest.DevAccount, resultContainer, "") {
		blob, ok := l.blobs.Blob(blobtest.DevAccount, resultContainer, name)
		if !ok {
			continue
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return copied, replaced, fmt.Errorf("copy results: %w", err)
		}
		if err := os.WriteFile(file, blob.Body, 0o644); err != nil {
			return copied, replaced, fmt.Errorf("copy results: %w", err)
		}
		copied++
		old, err := removeOthers(filepath.Dir(file), path.Base(name))
		replaced += old
		if err != nil {
			return copied, replaced, fmt.Errorf("replace result: %w", err)
		}
	}
	return copied, replaced, nil
}

// deliver copies the results to dir and says so; on standard error if standard output is for a shell.
func (l *lab) deliver(dir string, s *screen) error {
	copied, replaced, err := l.copyResults(dir)
	if err != nil {
		return err
	}
	said := fmt.Sprintf("%d results copied to %s", copied, shown(dir))
	if replaced > 0 {
		said += fmt.Sprintf("; %d of an earlier run replaced", replaced)
	}
	if l.kept {
		s.note("%s", said)
		return nil
	}
	return s.say("%s", said)
}

// removeOthers removes every result in dir but one.
func removeOthers(dir, keep string) (removed int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if e.Name() == keep || !e.Type().IsRegular() || !resultFile.MatchString(e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
