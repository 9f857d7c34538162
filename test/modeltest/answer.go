package modeltest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// completion is the body of a 200.
type completion struct {
	ID           string           `json:"id"`
	Object       string           `json:"object"`
	Created      int64            `json:"created"`
	Model        string           `json:"model"`
	Fingerprint  *string          `json:"system_fingerprint"`
	PromptFilter []map[string]any `json:"prompt_filter_results"`
	Choices      []map[string]any `json:"choices"`
	Usage        *usage           `json:"usage"`
}

type usage struct {
	Prompt        int           `json:"prompt_tokens"`
	Completion    int           `json:"completion_tokens"`
	Total         int           `json:"total_tokens"`
	PromptDetails promptDetails `json:"prompt_tokens_details"`
	Details       outputDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	Cached int `json:"cached_tokens"`
	Audio  int `json:"audio_tokens"`
}

type outputDetails struct {
	Reasoning int `json:"reasoning_tokens"`
	Audio     int `json:"audio_tokens"`
	Accepted  int `json:"accepted_prediction_tokens"`
	Rejected  int `json:"rejected_prediction_tokens"`
}

// answer is one run of the model: what it says and what that cost.
type answer struct {
	text      string
	finish    string // finish_reason
	visible   int    // tokens of text, per choice
	reasoning int    // tokens of reasoning, per choice
	cached    int
}

// answer runs the model. It is a function of the deployment, the system text and
// the user text, apart from the cached tokens.
func (q *request) answer(d Deployment, text string) answer {
	if text == "" {
		text = q.text(d)
	}
	a := answer{finish: "stop"}
	for _, stop := range q.stop {
		if before, _, found := strings.Cut(text, stop); found && stop != "" {
			text = before
		}
	}
	limit := q.limit(d)
	a.reasoning = min(d.ReasoningTokens, limit)
	if room := limit - a.reasoning; tokens(utf8.RuneCountInString(text), d) > room {
		a.finish = "length"
		text = string([]rune(text)[:int(float64(room)*d.CharactersPerToken)])
	}
	a.text = text
	a.visible = tokens(utf8.RuneCountInString(text), d)
	return a
}

// text is a digest of the request. The SHA-256 of the document in it lets a test
// tell whether a result belongs to its document.
func (q *request) text(d Deployment) string {
	system := sha256.Sum256([]byte(q.system))
	digest := fmt.Sprintf("Digest of a document of %d characters: sha256 %x under prompt %x.",
		utf8.RuneCountInString(q.user), q.hash, system[:6])
	missing := int(float64(d.AnswerTokens)*d.CharactersPerToken) - len(digest)
	if q.format.json {
		if q.format.schema != nil {
			return string(encode(fill(q.format.schema, hex.EncodeToString(q.hash[:]))))
		}
		return string(encode(map[string]any{
			"digest": digest,
			"sha256": hex.EncodeToString(q.hash[:]),
			"filler": padding(missing, q.hash[:]),
		}))
	}
	return digest + padding(missing, q.hash[:])
}

// padding returns n characters of words that depend on the seed.
func padding(n int, seed []byte) string {
	if n <= 0 {
		return ""
	}
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, " part %d is %x.", i+1, seed[i%len(seed)])
	}
	return b.String()[:n]
}

// half is the first half of a text.
func half(text string) string {
	runes := []rune(text)
	return string(runes[:len(runes)/2])
}

// bend changes a plain answer into the one a behaviour asks for.
func (a answer) bend(k Kind, d Deployment, limit int) answer {
	switch k {
	case OutputFiltered:
		a.finish, a.text = "content_filter", ""
	case OutputFilteredCut:
		a.finish, a.text = "content_filter", half(a.text)
	case OutputLimit:
		a.finish, a.text = "length", half(a.text)
	case ReasoningLimit:
		a.finish, a.text, a.reasoning = "length", "", limit
	case EmptyText, NoChoices, PromptFiltered:
		a.text, a.reasoning = "", 0
	case ModelRefusal:
		a.text = "I cannot help with that."
	}
	a.visible = tokens(utf8.RuneCountInString(a.text), d)
	return a
}

// message is the assistant message of one choice.
func (a answer) message(k Kind) map[string]any {
	m := map[string]any{"role": "assistant", "content": a.text, "refusal": nil}
	switch k {
	case OutputFiltered:
		return map[string]any{"role": "assistant"}
	case ModelRefusal:
		m["content"], m["refusal"] = nil, a.text
	}
	return m
}

// render is the body of a 200.
func (q *request) render(d Deployment, k Kind, a answer, id string, created int64) []byte {
	if k == NoChoices {
		return encode(completion{
			PromptFilter: []map[string]any{{"prompt_index": 0, "content_filter_results": filterResults("")}},
			Choices:      []map[string]any{},
		})
	}
	filtered := ""
	if a.finish == "content_filter" {
		filtered = "violence"
	}
	sum := sha256.Sum256([]byte(d.Model))
	fingerprint := fmt.Sprintf("fp_%x", sum[:5])
	c := completion{
		ID: id, Object: "chat.completion", Created: created, Model: d.Model, Fingerprint: &fingerprint,
		PromptFilter: []map[string]any{{"prompt_index": 0, "content_filter_results": filterResults("")}},
		Usage:        q.usage(d, a),
	}
	for i := range q.n {
		c.Choices = append(c.Choices, map[string]any{
			"index": i, "finish_reason": a.finish, "logprobs": nil,
			"message": a.message(k), "content_filter_results": filterResults(filtered),
		})
	}
	return encode(c)
}

func (q *request) usage(d Deployment, a answer) *usage {
	u := &usage{Prompt: q.prompt(d), Completion: q.n * (a.visible + a.reasoning)}
	u.Total = u.Prompt + u.Completion
	u.PromptDetails.Cached = a.cached
	u.Details.Reasoning = q.n * a.reasoning
	return u
}
