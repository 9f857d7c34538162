package modeltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxBody is the largest request body that is read.
	maxBody = 32 << 20
	// imageTokens is the charge of one image, that of low detail.
	imageTokens = 85
)

// request is what a chat completions body asks for, reduced to what this server
// needs. System and user text live only as long as the request.
type request struct {
	model      string
	system     string // system and developer messages, joined by newlines
	user       string // text of the user messages, joined by newlines
	hash       [sha256.Size]byte
	characters int // code points of all message text
	images     int
	n          int
	maxOutput  int // 0: not given
	stop       []string
	format     format
	fields     map[string]json.RawMessage
}

// format is the parsed response_format.
type format struct {
	json   bool // json_object, or json_schema
	schema map[string]any
}

// known reports whether a top-level name is one that this server takes. Those that
// change a real answer only by chance (seed, temperature) have no effect here.
func known(name string) bool {
	switch name {
	case "model", "messages", "n", "stream", "stop", "max_completion_tokens", "max_tokens",
		"response_format", "temperature", "top_p", "seed", "presence_penalty", "frequency_penalty",
		"user", "metadata", "store", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort",
		"service_tier", "verbosity", "safety_identifier", "prompt_cache_key":
		return true
	}
	return false
}

// readBody reads the whole body. An *apiError is to be answered; any other error
// means that the client is gone.
func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, tooLarge(maxBody)
	}
	return body, nil
}

// parse reads the parts of a request that identify it: model, messages and count.
// What depends on the deployment is left to validate.
func parse(body []byte) (*request, *apiError) {
	q := &request{n: 1}
	if !utf8.Valid(body) || json.Unmarshal(body, &q.fields) != nil || q.fields == nil {
		return nil, invalid("", "", "The body of the request is not one JSON object in UTF-8.")
	}
	if err := q.field("model", &q.model, "a string"); err != nil {
		return nil, err
	}
	var messages []message
	if err := q.field("messages", &messages, "an array of messages"); err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, invalid("missing_required_parameter", "messages", "Missing required parameter: 'messages'.")
	}
	var system, user []string
	for _, m := range messages {
		text, err := q.read(m)
		if err != nil {
			return nil, err
		}
		switch m.Role {
		case "system", "developer":
			system = append(system, text)
		case "user":
			user = append(user, text)
		case "assistant", "tool":
		default:
			return nil, invalid("invalid_value", "messages", "Invalid value for a message's role: it is none of system, developer, user, assistant and tool.")
		}
	}
	q.system = strings.Join(system, "\n")
	q.user = strings.Join(user, "\n")
	q.hash = sha256.Sum256([]byte(q.user))
	return q, nil
}

// field decodes a named parameter. An absent or null one leaves v as it is.
func (q *request) field(name string, v any, want string) *apiError {
	raw, ok := q.fields[name]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return invalid("invalid_type", name, "Invalid type for '%s': expected %s.", name, want)
	}
	return nil
}

func (q *request) given(name string) bool {
	raw, ok := q.fields[name]
	return ok && !bytes.Equal(raw, []byte("null"))
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type part struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// read counts one message and returns its text.
func (q *request) read(m message) (string, *apiError) {
	if len(m.Content) == 0 || bytes.Equal(m.Content, []byte("null")) {
		if m.Role == "assistant" {
			return "", nil
		}
		return "", invalid("invalid_type", "messages", "Invalid type for a message's content: expected a string or an array of parts, but got null.")
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		q.characters += utf8.RuneCountInString(text)
		return text, nil
	}
	var parts []part
	if json.Unmarshal(m.Content, &parts) != nil {
		return "", invalid("invalid_type", "messages", "Invalid type for a message's content: expected a string or an array of parts.")
	}
	var texts []string
	for _, p := range parts {
		switch p.Type {
		case "text":
			q.characters += utf8.RuneCountInString(p.Text)
			texts = append(texts, p.Text)
		case "image_url":
			if err := checkImage(p.ImageURL.URL); err != nil {
				return "", err
			}
			q.images++
		default:
			return "", invalid("invalid_value", "messages", "Invalid value for the type of a content part: it is neither text nor image_url.")
		}
	}
	return strings.Join(texts, "\n"), nil
}

// checkImage accepts an image inline as a data URL whose bytes are of a format
// that the service reads. Nothing is ever fetched.
func checkImage(url string) *apiError {
	_, data, ok := strings.Cut(url, ";base64,")
	if !ok || !strings.HasPrefix(url, "data:") {
		return invalid("invalid_image_url", "", "The image could not be read: give it as a data URL in base64.")
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err == nil {
		switch http.DetectContentType(raw) {
		case "image/png", "image/jpeg", "image/gif", "image/webp":
			return nil
		}
	}
	return invalid("invalid_image_format", "", "You uploaded an image that is not supported. Please make sure that it is a valid one.")
}

// validate checks the parameters against what the deployment takes.
func (q *request) validate(d Deployment) *apiError {
	for _, name := range slices.Sorted(maps.Keys(q.fields)) {
		if !known(name) {
			return invalid("unknown_parameter", name, "Unknown parameter: '%s'.", name)
		}
	}
	var stream bool
	if err := q.field("stream", &stream, "a boolean"); err != nil {
		return err
	}
	if stream {
		return invalid("unsupported_value", "stream", "Unsupported value: 'stream' cannot be true here. This server answers whole completions only.")
	}
	if err := q.field("n", &q.n, "an integer"); err != nil {
		return err
	}
	if q.n < 1 || q.n > 128 {
		return invalid("invalid_value", "n", "Invalid value for 'n': expected an integer from 1 to 128.")
	}
	if err := q.limits(d); err != nil {
		return err
	}
	if err := q.sampling(d); err != nil {
		return err
	}
	if err := q.stops(); err != nil {
		return err
	}
	if err := q.toolChoice(); err != nil {
		return err
	}
	return q.responseFormat()
}

func (q *request) limits(d Deployment) *apiError {
	name := "max_completion_tokens"
	if q.given("max_tokens") {
		if !d.MaxTokens {
			return invalid("unsupported_parameter", "max_tokens",
				"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
		}
		if q.given(name) {
			return invalid("invalid_parameter_combination", "max_tokens", "Give either 'max_tokens' or 'max_completion_tokens', not both.")
		}
		name = "max_tokens"
	}
	if err := q.field(name, &q.maxOutput, "an integer"); err != nil {
		return err
	}
	if q.given(name) && q.maxOutput < 1 {
		return invalid("integer_below_min_value", name, "Invalid '%s': integer below minimum value.", name)
	}
	if q.maxOutput > d.MaxOutput {
		return invalid("invalid_value", name, "%s is too large: %d. This model supports at most %d completion tokens.", name, q.maxOutput, d.MaxOutput)
	}
	return nil
}

// sampling checks ranges. A reasoning model takes only the default of each.
func (q *request) sampling(d Deployment) *apiError {
	for _, p := range []struct {
		name           string
		low, high, std float64
	}{
		{"temperature", 0, 2, 1},
		{"top_p", 0, 1, 1},
		{"presence_penalty", -2, 2, 0},
		{"frequency_penalty", -2, 2, 0},
	} {
		value := p.std
		if err := q.field(p.name, &value, "a number"); err != nil {
			return err
		}
		if value < p.low || value > p.high {
			return invalid("invalid_value", p.name, "Invalid value for '%s': expected a number from %g to %g.", p.name, p.low, p.high)
		}
		if d.ReasoningTokens > 0 && value != p.std {
			return invalid("unsupported_value", p.name, "Unsupported value: '%s' supports only its default (%g) with this model.", p.name, p.std)
		}
	}
	var seed int64
	return q.field("seed", &seed, "an integer")
}

func (q *request) stops() *apiError {
	var one string
	if q.field("stop", &one, "") == nil {
		if one != "" {
			q.stop = []string{one}
		}
		return nil
	}
	if err := q.field("stop", &q.stop, "a string or an array of strings"); err != nil {
		return err
	}
	if len(q.stop) > 4 {
		return invalid("array_above_max_length", "stop", "Invalid 'stop': array too long, at most 4 sequences.")
	}
	return nil
}

// toolChoice lets tools be offered, never forced: the answer here is always text.
func (q *request) toolChoice() *apiError {
	choice := "auto"
	if q.field("tool_choice", &choice, "") != nil || choice != "auto" && choice != "none" {
		return invalid("unsupported_value", "tool_choice", "Unsupported value: 'tool_choice' can be auto or none here. This server calls no tools.")
	}
	return nil
}

func (q *request) responseFormat() *apiError {
	const name = "response_format"
	var f struct {
		Type   string `json:"type"`
		Schema struct {
			Name   string         `json:"name"`
			Strict bool           `json:"strict"`
			Schema map[string]any `json:"schema"`
		} `json:"json_schema"`
	}
	if err := q.field(name, &f, "an object"); err != nil {
		return err
	}
	switch f.Type {
	case "", "text":
		if q.given(name) && f.Type == "" {
			return invalid("missing_required_parameter", name+".type", "Missing required parameter: 'response_format.type'.")
		}
		return nil
	case "json_object":
		if !strings.Contains(strings.ToLower(q.system+"\n"+q.user), "json") {
			return invalid("", "messages", "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.")
		}
		q.format = format{json: true}
		return nil
	case "json_schema":
		if f.Schema.Name == "" {
			return invalid("missing_required_parameter", name+".json_schema.name", "Missing required parameter: 'response_format.json_schema.name'.")
		}
		if f.Schema.Schema == nil {
			return invalid("missing_required_parameter", name+".json_schema.schema", "Missing required parameter: 'response_format.json_schema.schema'.")
		}
		if err := checkSchema(f.Schema.Schema, f.Schema.Strict); err != nil {
			return invalid("", name, "Invalid schema for response_format: %v.", err)
		}
		q.format = format{json: true, schema: f.Schema.Schema}
		return nil
	}
	return invalid("invalid_value", name+".type", "Invalid value for 'response_format.type': expected text, json_object or json_schema.")
}

// prompt is the size of the prompt in tokens: characters over the deployment's
// ratio, rounded up, and a fixed amount per image.
func (q *request) prompt(d Deployment) int {
	return tokens(q.characters, d) + q.images*imageTokens
}

// charge is what the service counts when the request arrives.
func (q *request) charge(d Deployment) int {
	return q.prompt(d) + q.n*q.limit(d)
}

func tokens(characters int, d Deployment) int {
	return int(math.Ceil(float64(characters) / d.CharactersPerToken))
}

// fits refuses what is longer than the model's context window.
func (q *request) fits(d Deployment) *apiError {
	prompt := q.prompt(d)
	if prompt > d.ContextWindow {
		return contextLength(d.ContextWindow, prompt, 0)
	}
	if prompt+q.maxOutput > d.ContextWindow {
		return contextLength(d.ContextWindow, prompt, q.maxOutput)
	}
	return nil
}

// limit is the most output tokens of one choice.
func (q *request) limit(d Deployment) int {
	if q.maxOutput == 0 {
		return d.MaxOutput
	}
	return q.maxOutput
}
