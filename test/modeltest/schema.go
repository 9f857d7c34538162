package modeltest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
)

const (
	// schemaDepth is how deep objects and arrays may nest (Azure OpenAI structured
	// outputs documentation: ten levels).
	schemaDepth = 10
	// schemaValues bounds the size of one answer and ends circular references.
	schemaValues = 10_000
)

// errTooDeep ends a branch of a recursive schema.
var errTooDeep = fmt.Errorf("it nests deeper than %d levels", schemaDepth)

// checkSchema reports why a schema cannot be answered. Strict schemas follow the
// rules of structured outputs: every object closes itself and requires all of its
// properties. Only what an answer would use is looked at.
func checkSchema(schema map[string]any, strict bool) error {
	if kind, _ := schema["type"].(string); kind != "object" {
		return errors.New("the schema must be an object at its root")
	}
	f := filler{root: schema, strict: strict}
	_, err := f.value("", schema, 0)
	return err
}

// fill returns a value that satisfies a schema which checkSchema accepted. Every
// free string in it is its property's name followed by text.
func fill(schema map[string]any, text string) any {
	f := filler{root: schema, text: text}
	v, err := f.value("", schema, 0)
	if err != nil {
		panic(fmt.Sprintf("modeltest: fill a checked schema: %v", err))
	}
	return v
}

// filler builds a value that satisfies a schema. It knows type, properties,
// required, items, enum, const, anyOf, $ref, minItems, minimum, exclusiveMinimum,
// minLength, maxLength and the common formats; pattern is not honoured.
type filler struct {
	root   map[string]any
	strict bool
	text   string // what strings are made of
	values int    // made so far
}

func (f *filler) value(name string, schema map[string]any, depth int) (any, error) {
	if depth > schemaDepth {
		return nil, errTooDeep
	}
	if f.values++; f.values > schemaValues {
		return nil, fmt.Errorf("its smallest answer has more than %d values", schemaValues)
	}
	if c, ok := schema["const"]; ok {
		return c, nil
	}
	if e, ok := schema["enum"].([]any); ok {
		if len(e) == 0 {
			return nil, fmt.Errorf("the enum of %q is empty", name)
		}
		return e[0], nil
	}
	if ref, ok := schema["$ref"].(string); ok {
		target, err := f.resolve(ref)
		if err != nil {
			return nil, err
		}
		return f.value(name, target, depth)
	}
	if branches, ok := schema["anyOf"].([]any); ok {
		return f.anyOf(name, branches, depth)
	}
	switch kind := schemaType(schema); kind {
	case "object":
		return f.object(name, schema, depth)
	case "array":
		return f.array(name, schema, depth)
	case "string":
		return f.str(name, schema), nil
	case "integer", "number":
		return minimum(schema), nil
	case "boolean":
		return true, nil
	case "null":
		return nil, nil
	default:
		return nil, fmt.Errorf("%q has no type that is known here", name)
	}
}

// schemaType returns the first type that is not null, since a list of types is how
// a strict schema says "optional".
func schemaType(schema map[string]any) string {
	switch t := schema["type"].(type) {
	case string:
		return t
	case []any:
		for _, one := range t {
			if s, ok := one.(string); ok && s != "null" {
				return s
			}
		}
		if len(t) > 0 {
			return "null"
		}
	}
	if _, ok := schema["properties"]; ok {
		return "object"
	}
	return ""
}

// anyOf takes the first branch that does not nest too deep; a recursive schema ends
// in its null.
func (f *filler) anyOf(name string, branches []any, depth int) (any, error) {
	for _, b := range branches {
		branch, ok := b.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the anyOf of %q holds no schema", name)
		}
		v, err := f.value(name, branch, depth)
		if !errors.Is(err, errTooDeep) {
			return v, err
		}
	}
	if len(branches) == 0 {
		return nil, fmt.Errorf("the anyOf of %q is empty", name)
	}
	return nil, errTooDeep
}

func (f *filler) object(name string, schema map[string]any, depth int) (any, error) {
	properties, _ := schema["properties"].(map[string]any)
	var required []string
	if list, ok := schema["required"].([]any); ok {
		for _, r := range list {
			s, ok := r.(string)
			if !ok {
				return nil, fmt.Errorf("required of %q holds something else than names", name)
			}
			required = append(required, s)
		}
	}
	if f.strict {
		if closed, ok := schema["additionalProperties"].(bool); !ok || closed {
			return nil, fmt.Errorf("'additionalProperties' of %q is required to be supplied and to be false", name)
		}
		for p := range properties {
			if !slices.Contains(required, p) {
				return nil, fmt.Errorf("'required' of %q must name every property, and %q is missing", name, p)
			}
		}
	}
	sort.Strings(required)
	out := map[string]any{}
	for _, r := range required {
		property, ok := properties[r].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%q is required but is no property", r)
		}
		v, err := f.value(r, property, depth+1)
		if err != nil {
			return nil, err
		}
		out[r] = v
	}
	return out, nil
}

func (f *filler) array(name string, schema map[string]any, depth int) (any, error) {
	items, ok := schema["items"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the array %q has no items", name)
	}
	count := 1
	least, given := schema["minItems"].(float64)
	if given {
		if least < 0 || least > schemaValues {
			return nil, fmt.Errorf("minItems of %q is out of range", name)
		}
		count = int(math.Ceil(least))
	}
	if most, ok := schema["maxItems"].(float64); ok && most < float64(count) {
		count = int(max(0, most))
	}
	out := make([]any, count)
	for i := range out {
		item, err := f.value(name, items, depth+1)
		if errors.Is(err, errTooDeep) && !given {
			return []any{}, nil // where a recursive schema ends
		}
		if err != nil {
			return nil, err
		}
		out[i] = item
	}
	return out, nil
}

// example returns a string of a known format, or "".
func example(format string) string {
	switch format {
	case "date-time":
		return "2026-01-02T03:04:05Z"
	case "date":
		return "2026-01-02"
	case "time":
		return "03:04:05Z"
	case "duration":
		return "PT1M"
	case "email":
		return "someone@example.com"
	case "hostname":
		return "example.com"
	case "ipv4":
		return "192.0.2.1"
	case "ipv6":
		return "2001:db8::1"
	case "uuid":
		return "00000000-0000-4000-8000-000000000000"
	}
	return ""
}

func (f *filler) str(name string, schema map[string]any) string {
	format, _ := schema["format"].(string)
	if s := example(format); s != "" {
		return s
	}
	s := strings.TrimSpace(name + " " + f.text)
	if least, ok := schema["minLength"].(float64); ok && least <= 1024 {
		for len(s) < int(least) {
			s += "."
		}
	}
	if most, ok := schema["maxLength"].(float64); ok && most >= 0 && float64(len([]rune(s))) > most {
		s = string([]rune(s)[:int(most)])
	}
	return s
}

// minimum returns the smallest whole number that is allowed.
func minimum(schema map[string]any) float64 {
	if m, ok := schema["exclusiveMinimum"].(float64); ok {
		return math.Floor(m) + 1
	}
	if m, ok := schema["minimum"].(float64); ok {
		return math.Ceil(m)
	}
	if m, ok := schema["maximum"].(float64); ok && m < 1 {
		return math.Floor(m)
	}
	return 1
}

// resolve follows a reference inside the document: "#" or "#/$defs/name".
func (f *filler) resolve(ref string) (map[string]any, error) {
	at := f.root
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, errors.New("a $ref leaves the schema")
	}
	for step := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if step == "" {
			continue
		}
		if at, ok = at[step].(map[string]any); !ok {
			return nil, errors.New("a $ref points at nothing")
		}
	}
	return at, nil
}
