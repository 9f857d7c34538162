package redact

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mark stands where something was taken out.
const mark = "REDACTED"

// The shapes that secrets have in the texts of Azure clients, HTTP clients and identity libraries.
var (
	// A URL up to the first character that cannot be part of one.
	urlShape = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)([^\s"'<>\x60]+)`)
	// name=value and name: value, quoted or not, for names that hold secrets. A signature or password has no reason to
	// contain a space, "&", ";" or a quote.
	pairShape = regexp.MustCompile(`(?i)\b(sharedaccesssignature|shared[_-]?access[_-]?key|account[_-]?key|api[_-]?key|x-api-key|` +
		`subscription[_-]?key|ocp-apim-subscription-key|primary[_-]?key|secondary[_-]?key|sig|signature|sas|token|` +
		`(?:access|refresh|id|bearer|session|sas)[_-]?token|client[_-]?secret|client[_-]?assertion|assertion|secret|password|passwd|pwd|` +
		`x-ms-copy-source-authorization|x-ms-encryption-key)(\\?["']?\s*(?:=|:|%3[dD])\s*\\?["']?)([^\s"'&;,}\\]+)`)
	// An authorization header to the end of its line, and the schemes anywhere.
	headerShape = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization\\?["']?\s*[:=]\s*)[^\r\n"'\\]+`)
	schemeShape = regexp.MustCompile(`(?i)\b(bearer|basic|sharedkey|sharedkeylite|sharedaccesssignature)\s+[a-z0-9+/=._~:%&-]{8,}`)
	// Keys known by their own shape: JSON web tokens, keys of model providers, base64 keys of Azure services.
	tokenShape  = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,4}`)
	modelShape  = regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{16,}`)
	base64Shape = regexp.MustCompile(`[A-Za-z0-9+/]{42,}={1,2}`)
)

// String returns s without secrets, as valid UTF-8 on one line and at most MaxLength bytes. URLs lose user information,
// query and fragment. It recognises secrets by the name before them or by their shape; a bare word that is a password
// cannot be recognised, so never put one into a text.
func String(s string) string {
	s = beginning(strings.ToValidUTF8(s, "\uFFFD"), 4*MaxLength)
	s = urlShape.ReplaceAllStringFunc(s, stripURL)
	s = headerShape.ReplaceAllString(s, "${1}"+mark)
	s = schemeShape.ReplaceAllString(s, "${1} "+mark)
	s = pairShape.ReplaceAllString(s, "${1}${2}"+mark)
	s = tokenShape.ReplaceAllString(s, mark)
	s = modelShape.ReplaceAllString(s, mark)
	s = base64Shape.ReplaceAllString(s, mark)
	return cut(oneLine(s), MaxLength)
}

// beginning bounds the work on a long text. It ends at a space, since half a secret may have lost the shape it is known by.
func beginning(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[:n]
	if i := strings.LastIndexAny(s, " \t\r\n"); i >= 0 {
		s = s[:i]
	} else {
		s = mark
	}
	return s + " …"
}

// stripURL keeps scheme, host and path.
func stripURL(raw string) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	authority, path, hasPath := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	}
	// An "@" after the first slash: a password that holds a slash would put its tail there.
	if i := strings.LastIndexByte(path, '@'); i >= 0 {
		return scheme + "://" + mark
	}
	if !hasPath {
		return scheme + "://" + authority
	}
	return scheme + "://" + authority + "/" + path
}

// oneLine turns each run of control characters and line separators into one space.
func oneLine(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	gap := false
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte(' ')
			gap = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cut shortens s to at most n bytes at a character boundary.
func cut(s string, n int) string {
	const ellipsis = "…"
	if len(s) <= n {
		return s
	}
	s = s[:n-len(ellipsis)]
	for len(s) > 0 {
		if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size != 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return s + ellipsis
}
