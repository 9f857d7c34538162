package model

import (
	"encoding/json"
	"strconv"
	"strings"
)

// word is a JSON scalar that is an identifier: a code, a name, an id. Services send some of them as numbers and some as null;
// decoding one never fails. Anything that does not look like an identifier becomes empty, so that it can be logged.
type word string

// UnmarshalJSON implements [json.Unmarshaler] and returns nil for every input.
func (w *word) UnmarshalJSON(raw []byte) error {
	*w = ""
	if len(raw) > 0 && raw[0] == '"' {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			*w = word(identifier(s))
		}
		return nil
	}
	if len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') {
		*w = word(identifier(string(raw)))
	}
	return nil
}

// count is a JSON number of tokens. Decoding one never fails: what is no number, or negative, is zero.
type count int

// maxCount keeps sums of counts far from overflow. No context window is near it.
const maxCount = 1 << 40

// UnmarshalJSON implements [json.Unmarshaler] and returns nil for every input.
func (c *count) UnmarshalJSON(raw []byte) error {
	*c = 0
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(f > 0) {
		return nil
	}
	*c = count(min(f, maxCount))
	return nil
}

// maxIdentifier bounds what a peer can put into our logs and records.
const maxIdentifier = 96

// identifier returns s if it is short and consists of letters, digits and the punctuation of codes, ids and parameter paths, and
// the empty string otherwise. Prose, and with it any quoted part of a document, has spaces and does not pass.
func identifier(s string) string {
	if len(s) > maxIdentifier {
		return ""
	}
	foreign := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("_-.:[]", r)
	}
	if strings.ContainsFunc(s, foreign) {
		return ""
	}
	return s
}
