package model

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Kind says what an [Answer] is.
type Kind string

// The kinds of an answer.
const (
	// Answered is a whole answer.
	Answered Kind = "answered"
	// Truncated is an answer that ended at a limit: see Answer.Reason. Its text is what came until then.
	Truncated Kind = "truncated"
	// PromptFiltered means that the content filter refused the input.
	PromptFiltered Kind = "prompt_filtered"
	// OutputFiltered means that the content filter cut or withheld the answer. There is no text.
	OutputFiltered Kind = "output_filtered"
	// ModelRefused means that the model itself declined: see Answer.Refusal.
	ModelRefused Kind = "model_refused"
	// Empty means that the service answered, and nothing usable was in it.
	Empty Kind = "empty"
)

// Reason says which limit ended a truncated answer.
type Reason string

// The reasons of a truncated answer.
const (
	// OutputLimit means that the text reached max_completion_tokens or the model's own limit.
	OutputLimit Reason = "output_limit"
	// ReasoningLimit means that reasoning used the budget before any text came.
	ReasoningLimit Reason = "reasoning_limit"
)

// reasoningShare is the part of the output from which reasoning is held to have used the budget. The rest is the few tokens of
// framing that a model may emit before its first visible one.
const reasoningShare = 0.9

// Answer is the service's decision about one document.
type Answer struct {
	Kind Kind
	// Reason is set for Truncated only.
	Reason Reason
	// Text is the answer, whole for Answered and partial for Truncated. It is empty for every other kind.
	Text string
	// Refusal is what the model said when it declined. It is set for ModelRefused only.
	Refusal string
	// ToolCalls is the message's tool_calls array as it came, or nil.
	ToolCalls json.RawMessage
	// FinishReason is the service's word, for records: stop, length, content_filter, tool_calls, or empty.
	FinishReason string
	// Filters lists the filter categories that blocked, sorted. It holds no text of the document or the answer.
	Filters []Filter
	// FilterFailed says that the content filter did not run on the input, the output or both (content_filter_error).
	FilterFailed bool
	// Model is the exact model version that answered, such as gpt-4o-2024-08-06.
	Model string
	// Fingerprint is system_fingerprint: it changes when the backend does. Often empty.
	Fingerprint string
	// ResponseID is the id of the completion.
	ResponseID string
	// RequestID is the service's id of the HTTP request (apim-request-id), which its support asks for.
	RequestID string
	// Deployment is the deployment that served the call: another than the one asked if provisioned throughput spilled over
	// (x-ms-deployment-name).
	Deployment string
	Usage      Usage
	Limits     RateLimits
}

// Usage is what the service billed, in tokens.
type Usage struct {
	// Input includes Cached; Output includes Reasoning.
	Input, Cached, Output, Reasoning int
	// Reported is false when the response had no usage: the counts are then zero because they are unknown.
	Reported bool
}

// Filter is one category of the content filter that blocked.
type Filter struct {
	// Category is the service's name of it, such as violence, jailbreak or protected_material_text.
	Category string
	// Severity is low, medium, high, or empty for categories that only detect.
	Severity string
	// Prompt is true for the input and false for the output.
	Prompt bool
}

type completion struct {
	ID                  word            `json:"id"`
	Model               word            `json:"model"`
	Fingerprint         word            `json:"system_fingerprint"`
	Choices             []choice        `json:"choices"`
	PromptFilterResults json.RawMessage `json:"prompt_filter_results"`
	Usage               json.RawMessage `json:"usage"`
	Error               json.RawMessage `json:"error"`
}

type choice struct {
	FinishReason word `json:"finish_reason"`
	Message      struct {
		Content   *string         `json:"content"`
		Refusal   *string         `json:"refusal"`
		ToolCalls json.RawMessage `json:"tool_calls"`
	} `json:"message"`
	filterResults
}

// filterResults accepts both spellings: the documentation has the singular in some places and the service the plural.
type filterResults struct {
	Plural   json.RawMessage `json:"content_filter_results"`
	Singular json.RawMessage `json:"content_filter_result"`
}

// answerOf reads the body of a 200. It returns false if the body is not a completion.
func answerOf(body []byte) (*Answer, bool) {
	var c completion
	if json.Unmarshal(body, &c) != nil || c.Choices == nil {
		return nil, false
	}
	a := &Answer{
		Model:       string(c.Model),
		Fingerprint: string(c.Fingerprint),
		ResponseID:  string(c.ID),
		Usage:       usageOf(c.Usage),
	}
	var prompts []filterResults
	if mayBlock(c.PromptFilterResults) && json.Unmarshal(c.PromptFilterResults, &prompts) == nil {
		for _, p := range prompts {
			a.filter(p, true)
		}
	}
	promptFiltered := len(a.Filters) > 0
	if len(c.Choices) == 0 {
		a.Kind = Empty
		if promptFiltered {
			a.Kind = PromptFiltered
		}
		return a, true
	}

	// One completion is asked for, so there is one choice.
	first := c.Choices[0]
	before := len(a.Filters)
	a.filter(first.filterResults, false)
	outputFiltered := len(a.Filters) > before
	a.FinishReason = string(first.FinishReason)
	text := deref(first.Message.Content)
	hasText := strings.TrimSpace(text) != ""
	tools := presentArray(first.Message.ToolCalls)

	switch {
	case a.FinishReason == "content_filter" || outputFiltered:
		a.Kind = OutputFiltered
	case deref(first.Message.Refusal) != "":
		a.Kind, a.Refusal = ModelRefused, deref(first.Message.Refusal)
	case promptFiltered && !hasText && tools == nil:
		a.Kind = PromptFiltered
	case a.FinishReason == "length":
		a.Kind, a.Text, a.Reason = Truncated, text, OutputLimit
		if !hasText && a.Usage.Reasoning > 0 && float64(a.Usage.Reasoning) >= reasoningShare*float64(a.Usage.Output) {
			a.Reason = ReasoningLimit
		}
	case tools != nil && (a.FinishReason == "tool_calls" || a.FinishReason == "stop"):
		a.Kind, a.Text, a.ToolCalls = Answered, text, tools
	case hasText && a.FinishReason == "stop":
		a.Kind, a.Text = Answered, text
	default:
		a.Kind = Empty
	}
	return a, true
}

// filter adds the categories of r that blocked.
func (a *Answer) filter(r filterResults, prompt bool) {
	for _, raw := range []json.RawMessage{r.Plural, r.Singular} {
		if !mayBlock(raw) {
			continue
		}
		var categories map[string]json.RawMessage
		if json.Unmarshal(raw, &categories) != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(categories)) {
			if name == "error" {
				a.FilterFailed = true
				continue
			}
			// Some categories hold a list of findings instead of a verdict; those never block by themselves.
			var verdict struct {
				Filtered bool `json:"filtered"`
				Severity word `json:"severity"`
			}
			if json.Unmarshal(categories[name], &verdict) == nil && verdict.Filtered {
				a.Filters = append(a.Filters, Filter{Category: identifier(name), Severity: string(verdict.Severity), Prompt: prompt})
			}
		}
	}
}

// mayBlock reports whether filter results are worth decoding. Nearly always nothing blocked: no verdict in them is true and no
// category is an error, unless an escape hides its name.
func mayBlock(results json.RawMessage) bool {
	for _, sign := range []string{"true", `"error"`, `\`} {
		if bytes.Contains(results, []byte(sign)) {
			return true
		}
	}
	return false
}

func usageOf(raw json.RawMessage) Usage {
	var u *struct {
		Prompt        count `json:"prompt_tokens"`
		Completion    count `json:"completion_tokens"`
		PromptDetails struct {
			Cached count `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionDetails struct {
			Reasoning count `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	// A malformed usage must not cost an answer that has been paid for.
	if json.Unmarshal(raw, &u) != nil || u == nil {
		return Usage{}
	}
	return Usage{
		Input:     int(u.Prompt),
		Cached:    int(u.PromptDetails.Cached),
		Output:    int(u.Completion),
		Reasoning: int(u.CompletionDetails.Reasoning),
		Reported:  true,
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// presentArray returns raw if it is an array with something in it, else nil.
func presentArray(raw json.RawMessage) json.RawMessage {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) < 2 || trimmed[0] != '[' || len(bytes.TrimSpace(trimmed[1:len(trimmed)-1])) == 0 {
		return nil
	}
	return trimmed
}
