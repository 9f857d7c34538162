package claimcheck

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"path"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// Kind is what a document is, as far as it matters to whoever builds a request from it.
type Kind string

// The kinds of document that are read. Each is plain text to the model.
const (
	KindText     Kind = "text"
	KindMarkdown Kind = "markdown"
	KindHTML     Kind = "html"
	KindJSON     Kind = "json"
	KindCSV      Kind = "csv"
)

// Document is the text of a blob.
type Document struct {
	Text        string // UTF-8 without a byte order mark, line ends as they were
	Kind        Kind
	ContentType string // as stored, empty if none
	ETag        string // canonical form, of the very bytes that were read
	SHA256      string // hexadecimal, of the stored bytes: before decompression and conversion
	Size        int64  // of the stored bytes
}

// kindOf tells the kind by content type and, where that says nothing, by the name's extension.
func kindOf(contentType, name string) (Kind, *DocumentError) {
	media, _ := mediaType(contentType)
	switch media {
	case "text/plain":
		return KindText, nil
	case "text/markdown", "text/x-markdown":
		return KindMarkdown, nil
	case "text/html":
		return KindHTML, nil
	case "application/json":
		return KindJSON, nil
	case "text/csv":
		return KindCSV, nil
	case "", "application/octet-stream", "binary/octet-stream", "application/x-www-form-urlencoded":
		// What SDKs and curl store when nobody said anything.
	default:
		if len(media) > 80 || !only(media, "/.+-_", false) {
			media = "(not shown)"
		}
		return "", unreadable(ReasonUnsupportedType, "content type %s is not read: store text, Markdown, HTML, JSON or CSV", media)
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".txt", ".text", ".log":
		return KindText, nil
	case ".md", ".markdown":
		return KindMarkdown, nil
	case ".html", ".htm":
		return KindHTML, nil
	case ".json":
		return KindJSON, nil
	case ".csv":
		return KindCSV, nil
	}
	return "", unreadable(ReasonUnsupportedType, "neither the content type nor the extension names a text type: set a content type such as text/plain")
}

// mediaType returns the type in lower case and the charset parameter. Sound parts of a broken header are used.
func mediaType(contentType string) (media, charset string) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil && media == "" {
		media, _, _ = strings.Cut(contentType, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	return media, strings.ToLower(params["charset"])
}

// decodeText turns stored bytes into text of at most limit bytes.
func decodeText(raw, contentEncoding, charset string, limit int64) (string, *DocumentError) {
	var err *DocumentError
	switch strings.ToLower(strings.TrimSpace(contentEncoding)) {
	case "", "identity":
	case "gzip", "x-gzip":
		if raw, err = gunzip(raw, limit); err != nil {
			return "", err
		}
	default:
		return "", unreadable(ReasonUnsupportedType, "the content encoding is not read: store the document as it is or with gzip")
	}
	text, err := decodeCharset(raw, charset)
	if err != nil {
		return "", err
	}
	if int64(len(text)) > limit {
		return "", unreadable(ReasonTooLarge, "the text has %d bytes as UTF-8, more than the limit of %d", len(text), limit)
	}
	if strings.HasPrefix(text, "%PDF-") {
		return "", unreadable(ReasonUnsupportedType, "the content is a PDF: extract its text first")
	}
	if strings.IndexByte(text, 0) >= 0 {
		return "", unreadable(ReasonUnsupportedType, "the content has NUL bytes: it is binary, or UTF-16 without a byte order mark or charset")
	}
	if strings.TrimSpace(text) == "" {
		return "", unreadable(ReasonEmptyDocument, "there is no text in the document")
	}
	return text, nil
}

// gunzip stops at limit, so that a small blob cannot become a large text.
func gunzip(raw string, limit int64) (string, *DocumentError) {
	reader, err := gzip.NewReader(strings.NewReader(raw))
	if err != nil {
		return "", unreadable(ReasonCorrupt, "the content encoding says gzip, the content is not")
	}
	var b strings.Builder
	_, err = io.CopyN(&b, reader, limit+1)
	switch {
	case err == nil:
		return "", unreadable(ReasonTooLarge, "the document decompresses to more than the limit of %d bytes", limit)
	case !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "", unreadable(ReasonCorrupt, "the gzip content is damaged")
	}
	return b.String(), nil
}

// decodeCharset converts to UTF-8 and never replaces a byte silently. A byte order mark outweighs the declared charset
// (WHATWG Encoding Standard, "decode").
func decodeCharset(raw, charset string) (string, *DocumentError) {
	switch {
	case strings.HasPrefix(raw, "\uFEFF"):
		return validUTF8(raw[len("\uFEFF"):])
	case strings.HasPrefix(raw, "\xff\xfe"):
		return fromUTF16(raw[2:], false)
	case strings.HasPrefix(raw, "\xfe\xff"):
		return fromUTF16(raw[2:], true)
	}
	switch charset {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		return validUTF8(raw)
	case "utf-16le":
		return fromUTF16(raw, false)
	case "utf-16be":
		return fromUTF16(raw, true)
	case "utf-16":
		return "", unreadable(ReasonUnsupportedCharset, "charset utf-16 without a byte order mark: declare utf-16le or utf-16be")
	case "windows-1252", "cp1252", "iso-8859-1", "latin1":
		// The Encoding Standard reads ISO-8859-1 as windows-1252: the two differ only where the former has control characters.
		return fromWindows1252(raw)
	}
	return "", unreadable(ReasonUnsupportedCharset, "the declared charset is not read: store UTF-8")
}

func validUTF8(text string) (string, *DocumentError) {
	if !utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 {
		return "", unreadable(ReasonUnsupportedCharset, "the content is not UTF-8: store UTF-8, or declare the charset in the content type")
	}
	return text, nil // with a NUL in it, it is refused as binary, which helps more
}

func fromUTF16(raw string, bigEndian bool) (string, *DocumentError) {
	if len(raw)%2 != 0 {
		return "", unreadable(ReasonCorrupt, "the content is UTF-16 with an odd number of bytes")
	}
	unit := func(i int) rune {
		if bigEndian {
			return rune(raw[i])<<8 | rune(raw[i+1])
		}
		return rune(raw[i+1])<<8 | rune(raw[i])
	}
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); i += 2 {
		r := unit(i)
		if utf16.IsSurrogate(r) {
			if i+2 >= len(raw) {
				return "", unreadable(ReasonCorrupt, "the content is UTF-16 with half a character")
			}
			if r = utf16.DecodeRune(r, unit(i+2)); r == utf8.RuneError {
				return "", unreadable(ReasonCorrupt, "the content is UTF-16 with half a character")
			}
			i += 2
		}
		b.WriteRune(r)
	}
	return strings.TrimPrefix(b.String(), "\uFEFF"), nil
}

func fromWindows1252(raw string) (string, *DocumentError) {
	var b strings.Builder
	b.Grow(len(raw) + len(raw)/8)
	for i := range len(raw) {
		b.WriteRune(charmap.Windows1252.DecodeByte(raw[i]))
	}
	if text := b.String(); !strings.ContainsRune(text, utf8.RuneError) {
		return text, nil
	}
	return "", unreadable(ReasonUnsupportedCharset, "the content has bytes that windows-1252 does not define")
}
