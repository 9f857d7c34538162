package claimcheck

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// ResultVersion is the version that Result.Encode writes. DecodeResult reads this version only: no older one exists.
const ResultVersion = "1"

// Result is the document that answers a claim, one blob per piece of work.
type Result struct {
	// Version is the version of this document, "1". Encode writes "1" when it is empty.
	Version       string `json:"version"`
	Tenant        string `json:"tenant"`
	Model         string `json:"model"` // the alias of the claim
	CorrelationID string `json:"correlation_id,omitzero"`
	WorkID        string `json:"work_id"`
	Run           string `json:"run,omitzero"`

	Outcome Outcome `json:"outcome"`
	// Reason is one of Outcome.Reasons, absent for a succeeded result.
	Reason Reason `json:"reason,omitzero"`
	// Detail says more in words for a person, at most MaxDetail bytes, without text of the document.
	Detail string `json:"detail,omitzero"`
	// Text is the answer, absent if there is none. A truncated result may have a part of one.
	Text string `json:"text,omitzero"`

	Deployment   string      `json:"deployment,omitzero"`    // the deployment that answered
	ModelVersion string      `json:"model_version,omitzero"` // the model as the service named it
	Fingerprint  string      `json:"fingerprint,omitzero"`   // system_fingerprint of the answer
	Prompt       PromptUsed  `json:"prompt,omitzero"`
	Input        InputUsed   `json:"input"`
	Usage        TokenUsage  `json:"usage,omitzero"`
	Cost         CostOfUsage `json:"cost,omitzero"`

	// TimingsMS is the time spent in each stage, in milliseconds, by the stage's name ([a-z][a-z0-9_]{0,31}).
	TimingsMS map[string]int64 `json:"timings_ms,omitempty"`
	// DeliveryCount is the delivery of the message that led to this result, the first being 1, or 0 if there was none.
	DeliveryCount int       `json:"delivery_count,omitzero"`
	TraceID       string    `json:"trace_id,omitzero"` // 32 hexadecimal digits (W3C Trace Context)
	CreatedAt     time.Time `json:"created_at"`
	// Attributes are those of the claim.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// PromptUsed names the prompt that was sent with the document.
type PromptUsed struct {
	Version string `json:"version,omitzero"`
	Hash    string `json:"hash,omitzero"` // SHA-256 of the prompt, hexadecimal
}

// InputUsed names the very bytes that were read. After a failure to read them only the URL is known.
type InputUsed struct {
	URL    string `json:"url"` // canonical, see Reference.String
	ETag   string `json:"etag,omitzero"`
	SHA256 string `json:"sha256,omitzero"` // of the stored bytes, hexadecimal
	Bytes  int64  `json:"bytes,omitzero"`  // of the stored bytes
}

// TokenUsage counts tokens as the model reported them. Cached is a part of Input and Reasoning a part of Output.
type TokenUsage struct {
	Input     int `json:"input"`
	Cached    int `json:"cached"`
	Output    int `json:"output"`
	Reasoning int `json:"reasoning"`
}

// CostOfUsage is the price of the usage by the catalog's rule: an estimate, the invoice is the provider's.
type CostOfUsage struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"` // ISO 4217
	Rule     string  `json:"rule"`     // the price rule's name in the catalog
}

// Encode returns the JSON of r, always the same bytes for equal results. It refuses a result whose outcome and reason do
// not belong together, a succeeded one without text, and one that could not be found again by its own fields.
func (r Result) Encode() ([]byte, error) {
	if r.Version == "" {
		r.Version = ResultVersion
	}
	r.CreatedAt = r.CreatedAt.UTC()
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	body, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return body, nil
}

// DecodeResult reads a result. Fields that this version does not know are ignored, so a reader may be older than the
// writer within one version; everything else is validated as Encode does.
func DecodeResult(body []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(body, &r); err != nil {
		// The decoder's text may quote values of the result.
		return Result{}, errors.New("decode result: not the JSON of a result")
	}
	if err := r.validate(); err != nil {
		return Result{}, fmt.Errorf("decode result: %w", err)
	}
	return r, nil
}

func (r Result) validate() error {
	switch {
	case r.Version != ResultVersion:
		return errors.New(`version is not "1"`)
	case !isTenant(r.Tenant):
		return errors.New("tenant is not a valid tenant name")
	case !isModel(r.Model):
		return errors.New("model is not a valid alias")
	case r.CorrelationID != "" && !isSegment(r.CorrelationID, MaxCorrelationID):
		return errors.New("correlation_id is not a valid one")
	case !isWorkID(r.WorkID):
		return errors.New("work_id is not 64 hexadecimal digits in lower case")
	case r.Run != "" && !isSegment(r.Run, MaxRun):
		return errors.New("run is not a valid one")
	case !slices.Contains(Outcomes(), r.Outcome):
		return errors.New("outcome is not one of the set")
	case !r.Outcome.allows(r.Reason):
		return fmt.Errorf("reason does not belong to outcome %s", r.Outcome)
	case len(r.Detail) > MaxDetail:
		return fmt.Errorf("detail is longer than %d bytes", MaxDetail)
	case r.Outcome == OutcomeSucceeded && r.Text == "":
		return errors.New("a succeeded result has no text")
	case r.Input.URL == "":
		return errors.New("input.url is empty")
	case r.Input.ETag != "" && !isETag(r.Input.ETag):
		return errors.New("input.etag is not canonical")
	case r.Input.SHA256 != "" && !isWorkID(r.Input.SHA256):
		return errors.New("input.sha256 is not 64 hexadecimal digits in lower case")
	case r.Prompt.Hash != "" && !isWorkID(r.Prompt.Hash):
		return errors.New("prompt.hash is not 64 hexadecimal digits in lower case")
	case min(r.Usage.Input, r.Usage.Cached, r.Usage.Output, r.Usage.Reasoning, r.DeliveryCount) < 0 || r.Input.Bytes < 0:
		return errors.New("a count is negative")
	case !(r.Cost.Amount >= 0) || math.IsInf(r.Cost.Amount, 0):
		return errors.New("cost.amount is not a price")
	case r.CreatedAt.IsZero():
		return errors.New("created_at is missing")
	}
	return r.validateMaps()
}

func (r Result) validateMaps() error {
	for stage, ms := range r.TimingsMS {
		if len(stage) == 0 || len(stage) > 32 || stage[0] < 'a' || stage[0] > 'z' || !only(stage, "_", false) || ms < 0 {
			return errors.New("timings_ms has a stage or a time that is none")
		}
	}
	if err := validateAttributes(r.Attributes); err != nil {
		return err
	}
	if strings.ContainsFunc(r.Detail, isControl) || !utf8.ValidString(r.Detail) {
		return errors.New("detail has control characters or is not UTF-8")
	}
	return nil
}
