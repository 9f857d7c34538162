package claimcheck

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads a native claim. The JSON is read strictly: exact names, no name twice, nothing after the object, nesting of
// at most MaxDepth, valid UTF-8, no unknown top-level field. One UTF-8 byte order mark in front is ignored. An optional
// field that is the empty string counts as absent.
//
// The error is always a *PoisonError. When several things are wrong the order is: the body's form, an inline document,
// the version, unknown fields, missing fields, field values in the order of the contract.
func Decode(body []byte) (Claim, error) {
	c, err := decode(body)
	if err != nil {
		return Claim{}, err
	}
	return c, nil
}

func decode(body []byte) (Claim, *PoisonError) {
	body = bytes.TrimPrefix(body, []byte("\uFEFF"))
	if err := checkForm(body); err != nil {
		return Claim{}, err
	}
	members, err := readMembers(body)
	if err != nil {
		return Claim{}, err
	}
	if err := checkMembers(members); err != nil {
		return Claim{}, err
	}
	return assemble(members)
}

// member is one top-level member of the body in the order it was written.
type member struct {
	name  string
	value jsontext.Value
}

// fieldNames are the fields of the contract, and requiredNames those that may not be missing, both in its order.
func fieldNames() []string {
	return []string{"version", "tenant", "model", "blob", "correlation_id", "etag", "run", "deadline", "attributes"}
}

func requiredNames() []string { return fieldNames()[:5] }

// payloadNames are fields that people use when they put the document or the prompt into the message.
func payloadNames() []string {
	return []string{"prompt", "messages", "content", "document", "text", "input", "body", "payload"}
}

// checkForm refuses bodies that are no JSON object, saying what they seem to be: whoever reads the dead-letter queue has
// only this sentence.
func checkForm(body []byte) *PoisonError {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) == 0 {
		return poison(ReasonEmptyBody, "", "send a claim as the message body (%s)", ContentType)
	}
	switch {
	case trimmed[0] == '{':
		return nil
	case bytes.HasPrefix(body, []byte("@\x06string\x08")):
		return poison(ReasonUnsupportedBody, "", "the body is a .NET DataContract string: send the JSON as UTF-8 bytes")
	case bytes.HasPrefix(body, []byte("\xff\xfe")), bytes.HasPrefix(body, []byte("\xfe\xff")):
		return poison(ReasonUnsupportedBody, "", "the body is UTF-16: send UTF-8")
	}
	value := jsontext.Value(trimmed)
	if !value.IsValid() {
		return poison(ReasonMalformed, "", "the body is not JSON: send one JSON object")
	}
	switch value.Kind() {
	case '[':
		return checkArray(value)
	case '"':
		return poison(ReasonUnsupportedBody, "", "the body is a JSON string: send the object itself, not its text in quotes")
	case 'n':
		return poison(ReasonEmptyBody, "", "the body is null: send a claim (%s)", ContentType)
	default:
		return poison(ReasonUnsupportedBody, "", "the body is a single JSON value: send one JSON object")
	}
}

// checkArray tells an array of several messages, of which taking the first would lose the rest, from an array around one.
func checkArray(value jsontext.Value) *PoisonError {
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	if _, err := dec.ReadToken(); err != nil {
		return poison(ReasonMalformed, "", "the body is not JSON: send one JSON object")
	}
	n := 0
	for dec.PeekKind() != ']' {
		if err := dec.SkipValue(); err != nil {
			return poison(ReasonMalformed, "", "the body is not JSON: send one JSON object")
		}
		n++
	}
	if n > 1 {
		return poison(ReasonMultipleEvents, "", "the body is an array of %d elements: send one message for each", n)
	}
	return poison(ReasonUnsupportedBody, "", "the body is an array: send the object itself")
}

// readMembers splits the object into its members and leaves nothing unread.
func readMembers(body []byte) ([]member, *PoisonError) {
	if tooDeep(body) {
		return nil, poison(ReasonMalformed, "", "the JSON is nested deeper than %d levels", MaxDepth)
	}
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	if _, err := dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	var members []member
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, syntaxError(err)
		}
		m := member{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, syntaxError(err)
		}
		m.value = value.Clone()
		members = append(members, m)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, poison(ReasonMalformed, "", "there is something after the JSON object: send exactly one object")
	}
	return members, nil
}

// syntaxError names the place and the kind of a syntax error. The decoder's own text may quote the body, so it is not used.
func syntaxError(err error) *PoisonError {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return poison(ReasonMalformed, "", "the JSON ends too early: send one complete object")
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return poison(ReasonMalformed, shownName(syntax.JSONPointer.LastToken()), "the name occurs twice in one object: keep one of them")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return poison(ReasonMalformed, "", "the JSON ends too early: send one complete object")
	}
	return poison(ReasonMalformed, "", "the JSON is wrong at byte %d (syntax or invalid UTF-8)", syntax.ByteOffset)
}

// tooDeep counts brackets outside strings. On text that is no JSON it may be wrong either way, and the decoder refuses
// that text in any case.
func tooDeep(body []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// checkMembers judges the set of names before any value.
func checkMembers(members []member) *PoisonError {
	has := func(name string) bool {
		return slices.ContainsFunc(members, func(m member) bool { return m.name == name })
	}
	if has("eventType") && has("data") || has("specversion") {
		return poison(ReasonUnsupportedBody, "", "the body is an event: a native claim has version, tenant, model, blob and correlation_id")
	}
	for _, name := range payloadNames() {
		if has(name) {
			return poison(ReasonInlinePayload, name, "upload the document to Blob storage and send its URL in blob")
		}
	}
	if err := checkVersion(members); err != nil {
		return err
	}
	for _, m := range members {
		if !slices.Contains(fieldNames(), m.name) {
			return unknownField(m.name)
		}
	}
	for _, name := range requiredNames() {
		if !has(name) {
			return missing(name)
		}
	}
	return nil
}

// checkVersion comes before the check for unknown fields, since a newer version may well have new ones.
func checkVersion(members []member) *PoisonError {
	for _, m := range members {
		if m.name != "version" {
			continue
		}
		version, err := stringOf(m)
		if err != nil {
			return err
		}
		if version != "" && version != Version {
			return poison(ReasonUnknownVersion, "version", `this reader knows version "1" only`)
		}
	}
	return nil
}

func unknownField(name string) *PoisonError {
	for _, known := range fieldNames() {
		if strings.EqualFold(name, known) {
			return invalid(shownName(name), "unknown field: names are lower case, write %s", known)
		}
	}
	return invalid(shownName(name), "unknown field: put data of your own under attributes")
}

// shownName returns name if it looks like a field name, and a placeholder otherwise: a name is the sender's to choose and
// may hold anything.
func shownName(name string) string {
	if name == "" || len(name) > 40 || !only(name, "._-$@", true) {
		return "(name not shown)"
	}
	return name
}

// assemble reads the values in the order of the contract and validates the claim as a whole.
func assemble(members []member) (Claim, *PoisonError) {
	var c Claim
	for _, name := range fieldNames() {
		i := slices.IndexFunc(members, func(m member) bool { return m.name == name })
		if i < 0 {
			continue
		}
		if name == "attributes" {
			attributes, err := attributesOf(members[i].value)
			if err != nil {
				return Claim{}, err
			}
			c.Attributes = attributes
			continue
		}
		value, err := stringOf(members[i])
		if err != nil {
			return Claim{}, err
		}
		if err := c.set(name, value); err != nil {
			return Claim{}, err
		}
	}
	if c.CorrelationID == "" {
		return Claim{}, missing("correlation_id")
	}
	if err := c.validate(); err != nil {
		return Claim{}, err
	}
	return c, nil
}

func (c *Claim) set(name, value string) *PoisonError {
	switch name {
	case "version":
		c.Version = value
	case "tenant":
		c.Tenant = value
	case "model":
		c.Model = value
	case "blob":
		c.Blob = value
	case "correlation_id":
		c.CorrelationID = value
	case "etag":
		c.ETag = CanonicalETag(value)
		if c.ETag == "" && value != "" {
			return invalid("etag", "the quotes are empty: leave the field out or send the blob's ETag")
		}
	case "run":
		c.Run = value
	case "deadline":
		deadline, err := parseDeadline(value)
		if err != nil {
			return err
		}
		c.Deadline = deadline
	}
	return nil
}

// stringOf returns the member's string. Null is refused: it says neither that a field is absent nor what it is.
func stringOf(m member) (string, *PoisonError) {
	switch m.value.Kind() {
	case '"':
		value, err := jsontext.AppendUnquote(nil, m.value)
		if err != nil {
			return "", poison(ReasonMalformed, m.name, "the string is not valid JSON")
		}
		return string(value), nil
	case 'n':
		return "", invalid(m.name, "null is not allowed: leave the field out or send a string")
	default:
		return "", invalid(m.name, "send a JSON string")
	}
}

func attributesOf(value jsontext.Value) (map[string]string, *PoisonError) {
	if value.Kind() != '{' {
		return nil, invalid("attributes", "send an object whose values are strings")
	}
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	if _, err := dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	var attributes map[string]string
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, syntaxError(err)
		}
		key := name.String()
		raw, err := dec.ReadValue()
		if err != nil {
			return nil, syntaxError(err)
		}
		if raw.Kind() != '"' {
			return nil, invalid("attributes."+shownName(key), "send a JSON string")
		}
		text, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return nil, syntaxError(err)
		}
		if attributes == nil {
			attributes = make(map[string]string)
		}
		attributes[key] = string(text)
	}
	return attributes, nil
}

// parseDeadline reads RFC 3339 as it is written there: time.Parse alone also takes hours of one digit, a comma for the
// decimal point and offsets of more than a day.
func parseDeadline(value string) (time.Time, *PoisonError) {
	if value == "" {
		return time.Time{}, nil
	}
	deadline, err := time.Parse(time.RFC3339, value)
	if err != nil || !isRFC3339(value) {
		return time.Time{}, invalid("deadline", "use RFC 3339 with at most nine decimals, such as 2026-12-01T12:00:00Z")
	}
	if deadline = deadline.UTC(); !isDeadline(deadline) {
		return time.Time{}, invalid("deadline", "use a time between the years 2000 and 2999")
	}
	return deadline, nil
}

// isRFC3339 checks the shape 2006-01-02T15:04:05[.999999999](Z|±15:04). The ranges of date and time are time.Parse's job.
func isRFC3339(value string) bool {
	const shape = "dddd-dd-ddTdd:dd:dd"
	rest, ok := matchShape(value, shape)
	if !ok {
		return false
	}
	if strings.HasPrefix(rest, ".") {
		digits := len(rest) - len(strings.TrimLeft(rest[1:], "0123456789")) - 1
		if digits < 1 || digits > 9 {
			return false
		}
		rest = rest[1+digits:]
	}
	if rest == "Z" {
		return true
	}
	if rest == "" || rest[0] != '+' && rest[0] != '-' {
		return false
	}
	end, ok := matchShape(rest[1:], "dd:dd")
	return ok && end == "" && rest[1:3] < "24" && rest[4:6] < "60"
}

// matchShape matches the beginning of value against shape, in which d is a digit, and returns what follows.
func matchShape(value, shape string) (rest string, ok bool) {
	if len(value) < len(shape) {
		return "", false
	}
	for i := range len(shape) {
		if shape[i] == 'd' {
			if value[i] < '0' || value[i] > '9' {
				return "", false
			}
		} else if value[i] != shape[i] {
			return "", false
		}
	}
	return value[len(shape):], true
}
