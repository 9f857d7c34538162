package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"millrace/claimcheck"
)

// longestSlug leaves room for the hash and stays below what a file system takes for one name.
const longestSlug = 100

var plainExtension = regexp.MustCompile(`^\.[A-Za-z0-9]{1,8}$`)

// reference is where a document is put in a container: below its tenant's prefix, as the policy wants it, under its own
// name. Some names are fine for a file and forbidden for a blob, such as one that ends in a dot; such a document gets a
// name made of a hash and its extension, and renamed is true.
func (d document) reference(account, container string) (ref claimcheck.Reference, renamed bool) {
	ref = claimcheck.Reference{Account: account, Container: container, Blob: path.Join(d.tenant, d.model, d.name)}
	url := ref.String()
	if parsed, err := claimcheck.ParseReference(url); err == nil && parsed == ref && len(url) <= claimcheck.MaxBlob {
		return ref, false
	}
	ext := path.Ext(d.name)
	if !plainExtension.MatchString(ext) {
		ext = ""
	}
	ref.Blob = path.Join(d.tenant, d.model, "renamed-"+shortHash(d.name, 16)+ext)
	return ref, true
}

// correlationID is the name of a document as far as a correlation id can carry it, so that a result is found by the name
// of its document. Where something is lost, a hash of the name keeps two documents apart.
func correlationID(name string) string {
	id := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, name)
	id = strings.TrimLeft(id, "._-")
	id = strings.TrimRight(id[:min(len(id), longestSlug)], ".-")
	if id == name {
		return id
	}
	return strings.TrimLeft(id+"-"+shortHash(name, 8), "-")
}

func shortHash(s string, digits int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:digits]
}

// contentType is what an upload pipeline that knows its files would declare: text where a name says nothing of it. Empty
// leaves the choice to the extension.
func (d document) contentType(body []byte) string {
	if !d.sniff {
		return ""
	}
	switch strings.ToLower(path.Ext(d.name)) {
	case ".txt", ".text", ".log", ".md", ".markdown", ".html", ".htm", ".json", ".csv":
		return ""
	}
	if !utf8.Valid(body) || bytes.IndexByte(body, 0) >= 0 || bytes.HasPrefix(body, []byte("%PDF-")) {
		return ""
	}
	return "text/plain; charset=utf-8"
}

// longestShown is how many characters of a name are printed.
const longestShown = 96

// shown is a name as it may be printed: a file's name can hold anything, escape sequences of terminals too, and be
// longer than a screen.
func shown(name string) string {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		name = strconv.Quote(name)
	}
	if r := []rune(name); len(r) > longestShown {
		return string(r[:longestShown/2-1]) + "…" + string(r[len(r)-longestShown/2:])
	}
	return name
}
