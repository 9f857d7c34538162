package claimcheck

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// ContentType is the content type of a message whose body is an encoded Claim.
const ContentType = "application/vnd.millrace.claim+json"

// Version is the contract version that Encode writes. Decode reads this version only: no older one exists.
const Version = "1"

// The bounds of a claim. Together they keep every valid claim within MaxEncoded bytes, whatever JSON has to escape.
const (
	MaxEncoded        = 4096 // bytes of an encoded claim
	MaxTenant         = 63   // characters
	MaxModel          = 63   // characters
	MaxBlob           = 1536 // bytes of the URL as written, percent-encoding included
	MaxCorrelationID  = 128  // characters
	MaxETag           = 64   // characters without quotes
	MaxRun            = 64   // characters
	MaxAttributes     = 6    // entries
	MaxAttributeName  = 32   // characters
	MaxAttributeValue = 64   // characters (Unicode code points)
	MaxDepth          = 8    // levels of nesting that Decode follows before it calls a body malformed
)

// Claim is one piece of work: which document, for whom, by which model. It is what a message carries instead of the
// document.
type Claim struct {
	// Version is the contract version, "1". Encode writes "1" when it is empty.
	Version string
	// Tenant is who the work is for and who pays: [a-z0-9][a-z0-9-]{0,62}.
	Tenant string
	// Model is a model alias of the catalog, not a deployment: [a-z0-9][a-z0-9._-]{0,62}, not ending in a dot.
	Model string
	// Blob is the document's https URL without credentials, as the SDK's blob client returns it. See ParseReference.
	Blob string
	// CorrelationID is the caller's name for the request and the folder of its result: letters, digits, ".", "_" and "-",
	// starting with a letter or digit and not ending in a dot, at most 128. Required in the native contract. Claims made
	// from storage events have none.
	CorrelationID string
	// ETag pins the content. Canonical form: no quotes, no W/. Empty means whatever is there when it is read.
	ETag string
	// Run makes the same document new work again. Characters as in CorrelationID, at most 64. Empty is the first run.
	Run string
	// Deadline is the time after which an answer is of no use, in UTC. The zero time means none.
	Deadline time.Time
	// Attributes are copied into the result. Names [a-z0-9][a-z0-9._-]{0,31}, values at most 64 characters without
	// control characters, at most 6 of them.
	Attributes map[string]string
}

// wireClaim is the JSON form of a Claim.
type wireClaim struct {
	Version       string            `json:"version"`
	Tenant        string            `json:"tenant"`
	Model         string            `json:"model"`
	Blob          string            `json:"blob"`
	CorrelationID string            `json:"correlation_id"`
	ETag          string            `json:"etag,omitzero"`
	Run           string            `json:"run,omitzero"`
	Deadline      string            `json:"deadline,omitzero"`
	Attributes    map[string]string `json:"attributes,omitempty"`
}

// Encode returns the message body for c, at most MaxEncoded bytes, always the same bytes for equal claims. It applies
// Decode's rules and returns the same *PoisonError, so what Encode accepts no worker refuses for its form. A quoted or
// weak ETag is written in canonical form and an empty Version as "1".
func (c Claim) Encode() ([]byte, error) {
	if c.Version == "" {
		c.Version = Version
	}
	c.ETag = CanonicalETag(c.ETag)
	if !c.Deadline.IsZero() {
		c.Deadline = c.Deadline.UTC()
	}
	if c.CorrelationID == "" {
		return nil, missing("correlation_id")
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	w := wireClaim{
		Version: c.Version, Tenant: c.Tenant, Model: c.Model, Blob: c.Blob, CorrelationID: c.CorrelationID,
		ETag: c.ETag, Run: c.Run, Attributes: c.Attributes,
	}
	if !c.Deadline.IsZero() {
		w.Deadline = c.Deadline.Format(time.RFC3339Nano)
	}
	body, err := json.Marshal(w, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode claim: %w", err)
	}
	return body, nil
}

// CanonicalETag removes the quotes and the weakness mark that HTTP puts around an entity tag (RFC 9110 section 8.8.3):
// `"0x8D…"` and `W/"0x8D…"` both become 0x8D…. SDKs differ in which form they return.
func CanonicalETag(raw string) string {
	tag := strings.TrimPrefix(raw, "W/")
	if len(tag) >= 2 && tag[0] == '"' && tag[len(tag)-1] == '"' {
		return tag[1 : len(tag)-1]
	}
	if len(tag) != len(raw) {
		return raw // W/ without quotes is no entity tag: leave it to be refused
	}
	return tag
}

// validate applies every rule that does not need the raw body. An empty correlation id is accepted, since claims made
// from events have none.
func (c Claim) validate() *PoisonError {
	switch {
	case c.Version == "":
		return missing("version")
	case c.Version != Version:
		return poison(ReasonUnknownVersion, "version", `this reader knows version "1" only`)
	case c.Tenant == "":
		return missing("tenant")
	case c.Model == "":
		return missing("model")
	case c.Blob == "":
		return missing("blob")
	}
	if !isTenant(c.Tenant) {
		return invalid("tenant", "use 1 to 63 lower-case letters, digits and hyphens, starting with a letter or digit")
	}
	if !isModel(c.Model) {
		return invalid("model", "use a model alias: 1 to 63 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit, not ending in a dot")
	}
	if len(c.Blob) > MaxBlob {
		return invalid("blob", "use a URL of at most %d bytes", MaxBlob)
	}
	if _, err := parseReference(c.Blob); err != nil {
		return err
	}
	if c.CorrelationID != "" && !isSegment(c.CorrelationID, MaxCorrelationID) {
		return invalid("correlation_id", "use 1 to 128 letters, digits, '.', '_' and '-', starting with a letter or digit, not ending in a dot")
	}
	if c.ETag != "" && !isETag(c.ETag) {
		return invalid("etag", "use the blob's ETag as the service returned it, at most %d characters", MaxETag)
	}
	if c.Run != "" && !isSegment(c.Run, MaxRun) {
		return invalid("run", "use at most 64 letters, digits, '.', '_' and '-', starting with a letter or digit, not ending in a dot")
	}
	if !c.Deadline.IsZero() && !isDeadline(c.Deadline) {
		return invalid("deadline", "use a time between the years 2000 and 2999")
	}
	return validateAttributes(c.Attributes)
}

// validateAttributes applies the bounds of attributes. Its errors name the entry only when the name itself is sound.
func validateAttributes(attributes map[string]string) *PoisonError {
	if len(attributes) > MaxAttributes {
		return invalid("attributes", "use at most %d attributes", MaxAttributes)
	}
	for name, value := range attributes {
		if !isAttributeName(name) {
			return invalid("attributes", "use names of 1 to 32 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit")
		}
		if !utf8.ValidString(value) || utf8.RuneCountInString(value) > MaxAttributeValue || strings.ContainsFunc(value, isControl) {
			return invalid("attributes."+name, "use a value of at most %d characters without control characters", MaxAttributeValue)
		}
	}
	return nil
}

func missing(field string) *PoisonError {
	return poison(ReasonMissingField, field, "add it: it is required and may not be empty")
}

func invalid(field, format string, args ...any) *PoisonError {
	return poison(ReasonInvalidField, field, format, args...)
}

func isTenant(s string) bool {
	return len(s) <= MaxTenant && startsWell(s) && only(s, "-", false)
}

func isModel(s string) bool {
	return len(s) <= MaxModel && startsWell(s) && only(s, "._-", false) && !strings.HasSuffix(s, ".")
}

func isAttributeName(s string) bool {
	return len(s) <= MaxAttributeName && startsWell(s) && only(s, "._-", false)
}

// isSegment reports whether s is safe as one segment of a blob name: no separator, no "." or "..", no trailing dot (the
// documentation of blob names advises against it), and never "_", which is the segment of work without correlation id.
func isSegment(s string, limit int) bool {
	return len(s) <= limit && startsWell(strings.ToLower(s)) && only(s, "._-", true) && !strings.HasSuffix(s, ".")
}

// isETag accepts RFC 9110's etagc in ASCII, without the backslash that some parsers take for an escape.
func isETag(s string) bool {
	if len(s) > MaxETag {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return true
}

func isDeadline(t time.Time) bool {
	return t.Year() >= 2000 && t.Year() <= 2999
}

func startsWell(s string) bool {
	return s != "" && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= '0' && s[0] <= '9')
}

// only reports whether s consists of lower-case letters, digits, the extra characters, and upper-case letters if allowed.
func only(s, extra string, upper bool) bool {
	for i := range len(s) {
		b := s[i]
		switch {
		case b >= 'a' && b <= 'z', b >= '0' && b <= '9':
		case upper && b >= 'A' && b <= 'Z':
		case strings.IndexByte(extra, b) >= 0:
		default:
			return false
		}
	}
	return true
}

// isControl covers C0, DEL and C1.
func isControl(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0
}
