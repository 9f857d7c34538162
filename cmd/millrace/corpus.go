package main

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

//go:embed samples
var samples embed.FS

// The samples' world: a retailer whose documents feed a knowledge search and are scored again after prompt changes, and
// a utility whose tickets are summarised for the morning report.
const (
	sampleQueue  = "doc-ingest"
	tenantRetail = "fernhill"
	tenantHelp   = "brightwater"
	aliasIngest  = "knowledge-ingest"
	aliasTickets = "ticket-summary"
	aliasRescore = "rescore"
)

// document is one file to work on.
type document struct {
	name   string // what people call it
	tenant string
	model  string
	read   func() ([]byte, error)
	size   int64 // of a file on disk, in bytes
	sniff  bool  // its content, not its name alone, says whether it is text
}

// sampleDocuments are the embedded ones, samples/docs/{tenant}/{alias}/{file}, and one that is too large to keep.
func sampleDocuments() ([]document, error) {
	var docs []document
	err := fs.WalkDir(samples, "samples/docs", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		parts := strings.Split(strings.TrimPrefix(file, "samples/docs/"), "/")
		docs = append(docs, document{
			name: path.Base(file), tenant: parts[0], model: parts[1],
			read: func() ([]byte, error) { return samples.ReadFile(file) },
		})
		return nil
	})
	docs = append(docs, document{
		name: "stock-movements-2026.csv", tenant: tenantRetail, model: aliasIngest, read: stockMovements,
	})
	return docs, err
}

// stockMovements makes a table larger than the samples' document limit.
func stockMovements() ([]byte, error) {
	var b strings.Builder
	b.WriteString("date,shop,article,movement\n")
	for row := 0; b.Len() <= sampleMaxDocument; row++ {
		fmt.Fprintf(&b, "2026-%02d-%02d,%d,%05d,%d\n", row%12+1, row%28+1, row%37, row*7919%99991, row%13-6)
	}
	return []byte(b.String()), nil
}

// refusedSample matches the samples that the content filter of the emulated model refuses.
var refusedSample = regexp.MustCompile(`\.refused\.`)
