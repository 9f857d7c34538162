package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// Request is one document and how to ask about it. Nil and empty fields are not sent.
type Request struct {
	// System is the system message, sent verbatim.
	System string
	// Document is the user message, sent verbatim.
	Document string
	// Messages replaces System and Document: the messages of a caller's own request, each a JSON object, sent as they are.
	Messages []json.RawMessage
	// MaxCompletionTokens is required: without it the service reserves the model's maximum against the limit.
	MaxCompletionTokens int
	Temperature, TopP   *float64
	Seed                *int64
	Stop                []string
	// Schema asks for an answer that satisfies a JSON Schema (Structured Outputs, strict).
	Schema *Schema
	// ResponseFormat replaces Schema: response_format of a caller's own request, a JSON object.
	ResponseFormat json.RawMessage
	// Tools are the tools of a caller's own request, each a JSON object.
	Tools []json.RawMessage
	// CallerParams names further parameters that came with the document (temperature, stop, …): a refusal of one of them is the
	// document's fault and not the configuration's. Messages, ResponseFormat and Tools count without being named.
	CallerParams []string
	// Sent is called at most once, when the request has been written to the wire, and never after Complete has returned. It may
	// run on another goroutine and must not block.
	Sent func()
}

// Schema is a named JSON Schema. The name is letters, digits, - and _, at most 64.
type Schema struct {
	Name string
	Raw  json.RawMessage
}

// Estimate returns what the service is expected to count for r against tokens per minute when r arrives. For a caller's own
// messages, response format and tools the characters of their JSON count, which errs on the high side.
func (r *Request) Estimate() int {
	if r.Messages == nil {
		return Estimate(r.System, r.Document, r.MaxCompletionTokens)
	}
	characters := utf8.RuneCount(r.ResponseFormat)
	for _, raw := range slices.Concat(r.Messages, r.Tools) {
		characters += utf8.RuneCount(raw)
	}
	return tokens(characters) + r.MaxCompletionTokens
}

// Estimate returns what the service is expected to count against tokens per minute when a request with these two messages
// arrives: a quarter of their characters, rounded up, plus maxOutput for the one completion asked for.
//
// "Manage Azure OpenAI quota" says that the count is an estimate from the characters of the prompt and the output limit, and not
// what is billed later. It gives no formula: four characters a token is the service's rule of thumb for English, characters
// are taken to be Unicode code points, and measured charges of requests with small prompts fit. Chinese, Japanese and JSON are
// counted higher by the tokenizer; calibrate by comparing with Usage.Input.
func Estimate(system, document string, maxOutput int) int {
	return tokens(utf8.RuneCountInString(system)+utf8.RuneCountInString(document)) + maxOutput
}

func tokens(characters int) int { return (characters + 3) / 4 }

// callerParams returns every parameter that came with the document.
func (r *Request) callerParams() []string {
	names := slices.Clone(r.CallerParams)
	if r.Messages != nil {
		names = append(names, "messages")
	}
	if r.ResponseFormat != nil {
		names = append(names, "response_format")
	}
	if r.Tools != nil {
		names = append(names, "tools")
	}
	return names
}

// invalid returns the parameter that cannot be sent, or the empty string.
func (r *Request) invalid() string {
	object := func(raw json.RawMessage) bool {
		return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) && json.Valid(raw)
	}
	switch {
	case r.MaxCompletionTokens <= 0:
		return "max_completion_tokens"
	case r.Messages == nil && r.Document == "", r.Messages != nil && len(r.Messages) == 0,
		slices.ContainsFunc(r.Messages, func(m json.RawMessage) bool { return !object(m) }):
		return "messages"
	case slices.ContainsFunc(r.Tools, func(t json.RawMessage) bool { return !object(t) }):
		return "tools"
	case r.ResponseFormat != nil && !object(r.ResponseFormat), r.Schema != nil && !object(r.Schema.Raw):
		return "response_format"
	}
	return ""
}

// wireRequest is the body of a request ("Azure OpenAI REST API reference", chat completions, create).
type wireRequest struct {
	Model               string            `json:"model"`
	Messages            any               `json:"messages"` // []wireMessage or []json.RawMessage
	MaxCompletionTokens int               `json:"max_completion_tokens"`
	Temperature         *float64          `json:"temperature,omitempty"`
	TopP                *float64          `json:"top_p,omitempty"`
	Seed                *int64            `json:"seed,omitempty"`
	Stop                []string          `json:"stop,omitempty"`
	Tools               []json.RawMessage `json:"tools,omitempty"`
	ResponseFormat      any               `json:"response_format,omitempty"` // json.RawMessage or wireFormat
}

type wireMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type wireFormat struct {
	Type       string     `json:"type"`
	JSONSchema wireSchema `json:"json_schema"`
}

type wireSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict bool            `json:"strict"`
}

// encode returns the body of the request to deployment. The document is escaped once; through the SDK's types it would be
// copied and checked again by every object and union around it, at a tenth of what a message costs in CPU time.
func (r *Request) encode(deployment string) ([]byte, error) {
	w := wireRequest{
		Model: deployment, Messages: r.Messages, MaxCompletionTokens: r.MaxCompletionTokens,
		Temperature: r.Temperature, TopP: r.TopP, Seed: r.Seed, Stop: r.Stop, Tools: r.Tools,
	}
	if r.Messages == nil {
		messages := make([]wireMessage, 0, 2)
		if r.System != "" {
			messages = append(messages, wireMessage{"system", r.System})
		}
		w.Messages = append(messages, wireMessage{"user", r.Document})
	}
	switch {
	case r.ResponseFormat != nil:
		w.ResponseFormat = r.ResponseFormat
	case r.Schema != nil:
		w.ResponseFormat = wireFormat{"json_schema", wireSchema{r.Schema.Name, r.Schema.Raw, true}}
	}
	const envelope = 1 << 10 // bytes, about what everything but the texts takes
	var body bytes.Buffer
	body.Grow(len(r.System) + len(r.Document) + len(r.Document)/16 + envelope)
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(w); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), nil
}
