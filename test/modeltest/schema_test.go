package modeltest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"millrace/test/modeltest"
)

// TestServerSatisfiesSchemas has a validator that is not ours judge the answers.
func TestServerSatisfiesSchemas(t *testing.T) {
	for name, schema := range map[string]string{
		"scalars": `{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"number","minimum":2.5},"i":{"type":"integer","exclusiveMinimum":3},"b":{"type":"boolean"},"z":{"type":"null"}},"required":["s","n","i","b","z"],"additionalProperties":false}`,
		"choices": `{"type":"object","properties":{"e":{"enum":["red","green"]},"c":{"const":4},"o":{"type":["null","string"]},"a":{"anyOf":[{"type":"integer"},{"type":"string"}]}},"required":["e","c","o","a"],"additionalProperties":false}`,
		"arrays":  `{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"},"minItems":3},"none":{"type":"array","items":{"type":"string"},"maxItems":0}},"required":["a","none"],"additionalProperties":false}`,
		"strings": `{"type":"object","properties":{"short":{"type":"string","maxLength":4},"long":{"type":"string","minLength":200},"when":{"type":"string","format":"date-time"},"id":{"type":"string","format":"uuid"}},"required":["short","long","when","id"],"additionalProperties":false}`,
		"nested":  `{"type":"object","properties":{"o":{"type":"object","properties":{"p":{"$ref":"#/$defs/p"}},"required":["p"],"additionalProperties":false}},"required":["o"],"additionalProperties":false,"$defs":{"p":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false}}}`,
		"list":    `{"type":"object","properties":{"v":{"type":"string"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}`,
		"tree":    `{"type":"object","properties":{"v":{"type":"string"},"children":{"type":"array","items":{"$ref":"#"}}},"required":["v","children"],"additionalProperties":false}`,
	} {
		t.Run(name, func(t *testing.T) {
			document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
			if err != nil {
				t.Fatal(err)
			}
			c := jsonschema.NewCompiler()
			c.AssertFormat()
			if err := c.AddResource("schema.json", document); err != nil {
				t.Fatal(err)
			}
			validator, err := c.Compile("schema.json")
			if err != nil {
				t.Fatal(err)
			}
			w := post(t, &modeltest.Server{}, "d", fmt.Sprintf(`{"messages":[{"role":"user","content":"x"}],"max_completion_tokens":5000,
				"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":%s}}}`, schema))
			answer := content(t, w)
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
			if err != nil {
				t.Fatalf("answer %q is no JSON: %v", answer, err)
			}
			if err := validator.Validate(value); err != nil {
				t.Errorf("answer %s does not satisfy its schema: %v", answer, err)
			}
		})
	}
}

func TestServerAnswersInJSON(t *testing.T) {
	for _, tokens := range []int{0, 200} {
		s := &modeltest.Server{Deployments: map[string]modeltest.Deployment{"d": {AnswerTokens: tokens}}}
		w := post(t, s, "d", `{"messages":[{"role":"user","content":"as JSON"}],"max_completion_tokens":500,"response_format":{"type":"json_object"}}`)
		var v struct{ Digest, SHA256 string }
		if err := json.Unmarshal([]byte(content(t, w)), &v); err != nil || v.SHA256 != sum("as JSON") {
			t.Errorf("answer = %s, %v, want an object with the hash", w.Body, err)
		}
	}
}
