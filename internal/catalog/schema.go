package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compile reads a JSON Schema. It must stand alone, and describe an object, which is all that the model API accepts.
func compile(name string, raw []byte) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("is not JSON")
	}
	root, ok := doc.(map[string]any)
	if !ok || root["type"] != "object" {
		return nil, errors.New(`must have "type": "object" at its top, as the model API requires`)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	const location = "schema:answer"
	if err := c.AddResource(location, doc); err != nil {
		return nil, errors.New(oneLine(err))
	}
	compiled, err := c.Compile(location)
	var outside *jsonschema.LoadURLError
	var invalid *jsonschema.SchemaValidationError
	switch {
	case errors.As(err, &outside):
		return nil, errors.New("refers to something outside it, but must stand alone")
	case errors.As(err, &invalid):
		var at *jsonschema.ValidationError
		if errors.As(invalid.Err, &at) {
			return nil, fmt.Errorf("is no valid JSON Schema at /%s", strings.Join(leaf(at).InstanceLocation, "/"))
		}
		return nil, errors.New("is no valid JSON Schema")
	case err != nil:
		return nil, errors.New(oneLine(err))
	}
	return &Schema{Name: strings.ReplaceAll(name, ".", "_"), Raw: raw, compiled: compiled}, nil
}

type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("schemas are not fetched") }

// leaf returns the first problem that has no other behind it.
func leaf(err *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(err.Causes) > 0 {
		err = err.Causes[0]
	}
	return err
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Check returns nil if an answer is JSON that matches the schema. The error names places of the schema and nothing of the answer.
func (s *Schema) Check(answer string) error {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
	if err != nil {
		return errors.New("answer is not JSON")
	}
	err = s.compiled.Validate(doc)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return errors.New("answer does not match the schema")
	}
	invalid = leaf(invalid)
	_, place, _ := strings.Cut(invalid.SchemaURL, "#")
	return fmt.Errorf("answer does not match the schema at %s", strings.Join(append([]string{place}, invalid.ErrorKind.KeywordPath()...), "/"))
}
