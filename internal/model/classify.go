package model

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// tooLargeWait is the wait from which a 429 may mean that the request can never fit. The limits that pass are per minute at most.
const tooLargeWait = time.Hour

// Response is all that the meaning of one HTTP response depends on.
type Response struct {
	// Host and Deployment are copied into the answer or the error.
	Host, Deployment string
	Status           int
	Header           http.Header
	Body             []byte
	// Now is when the response came. It is used for a Retry-After date in a response without Date.
	Now time.Time
	// Estimate is what the service was expected to count for the request: see Estimate. Zero if unknown.
	Estimate int
	// TokenLimit is the configured tokens-per-minute limit, used where the response does not name one. Zero if unknown.
	TokenLimit int
	// CallerParams names the request parameters that came with the document and not from the configuration.
	CallerParams []string
}

// Classify says what r means, by the table of the package documentation. Exactly one of the results is not nil.
func Classify(r Response) (*Answer, *Error) {
	if r.Status == http.StatusOK {
		return classifyOK(r)
	}
	problem := problemOf(r.Body)
	if (r.Status == http.StatusBadRequest || r.Status == http.StatusUnprocessableEntity) && problem.filtered() {
		return r.finish(problem.answer()), nil
	}
	return nil, r.fail(r.kind(problem), problem)
}

func classifyOK(r Response) (*Answer, *Error) {
	if a, ok := answerOf(r.Body); ok {
		return r.finish(a), nil
	}
	// Gateways and overloaded backends put an error into a 200.
	problem := problemOf(r.Body)
	switch {
	case problem.filtered():
		return r.finish(problem.answer()), nil
	case problem.quota():
		return nil, r.fail(QuotaExhausted, problem)
	case problem.Code == "429" || problem.Code == "rate_limit_exceeded":
		return nil, r.fail(Throttled, problem)
	case problem.Code == "":
		problem.Code = "invalid_response"
	}
	return nil, r.fail(Unavailable, problem)
}

// kind classifies every status but 200.
func (r Response) kind(p problem) ErrorKind {
	switch r.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return r.refusalKind(p)
	case http.StatusRequestEntityTooLarge:
		return ContextLength
	case http.StatusPaymentRequired:
		return QuotaExhausted
	case http.StatusNotFound:
		if p.object || p.gateway {
			return Misconfigured
		}
		return Unavailable
	case http.StatusTooManyRequests:
		return r.throttleKind(p)
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusFailedDependency, http.StatusTooEarly, 499:
		return Unavailable
	}
	if r.Status >= 300 && r.Status < 500 {
		return Misconfigured
	}
	return Unavailable
}

// configured reports whether param is one that a request has from the configuration unless its caller brought it.
func configured(param string) bool {
	switch param {
	case "model", "max_completion_tokens", "max_tokens", "temperature", "top_p", "seed", "stop", "response_format", "tools":
		return true
	}
	return false
}

// refusalKind says whose fault a 400 is.
func (r Response) refusalKind(p problem) ErrorKind {
	switch p.Code {
	case "context_length_exceeded", "string_above_max_length":
		return ContextLength
	}
	if p.media() {
		return InvalidMedia
	}
	if !p.object {
		return Misconfigured
	}
	root := string(p.Param)
	if end := strings.IndexAny(root, ".["); end >= 0 {
		root = root[:end]
	}
	// A model without system messages refuses messages[0].role for every document.
	role := root == "messages" && strings.HasSuffix(string(p.Param), ".role")
	if (role || configured(root)) && !slices.Contains(r.CallerParams, root) {
		return Misconfigured
	}
	if root == "" && len(r.CallerParams) == 0 {
		switch p.Code {
		case "unsupported_parameter", "unsupported_value", "OperationNotSupported":
			return Misconfigured
		}
	}
	return RequestParameter
}

// throttleKind tells the meanings of a 429 apart.
func (r Response) throttleKind(p problem) ErrorKind {
	if p.quota() {
		return QuotaExhausted
	}
	limit := rateLimits(r.Header).LimitTokens
	if limit <= 0 {
		limit = r.TokenLimit
	}
	if retryAfter(r.Header, r.Now) >= tooLargeWait && limit > 0 && r.Estimate > limit/2 {
		return TooLarge
	}
	return Throttled
}

func (r Response) finish(a *Answer) *Answer {
	a.Limits = rateLimits(r.Header)
	a.RequestID = requestID(r.Header)
	a.Deployment = r.Deployment
	if name := identifier(r.Header.Get("X-Ms-Deployment-Name")); name != "" {
		a.Deployment = name
	}
	return a
}

func (r Response) fail(kind ErrorKind, p problem) *Error {
	return &Error{
		Kind:       kind,
		Host:       r.Host,
		Deployment: r.Deployment,
		Status:     r.Status,
		Code:       string(p.Code),
		Param:      string(p.Param),
		RetryAfter: retryAfter(r.Header, r.Now),
		Sent:       true,
		Limits:     rateLimits(r.Header),
		RequestID:  requestID(r.Header),
	}
}

// problem is the error object of a response, as far as it is structured.
type problem struct {
	Code  word            `json:"code"`
	Type  word            `json:"type"`
	Param word            `json:"param"`
	Inner json.RawMessage `json:"innererror"`

	object  bool // the body has an error object
	gateway bool // the body has API Management's {"statusCode":…} instead
	inner   innerError
}

type innerError struct {
	Code word `json:"code"`
	filterResults
}

func problemOf(body []byte) problem {
	var envelope struct {
		Error      json.RawMessage `json:"error"`
		StatusCode count           `json:"statusCode"`
	}
	var p problem
	if json.Unmarshal(body, &envelope) != nil {
		return p
	}
	p.gateway = envelope.StatusCode > 0
	if len(envelope.Error) == 0 || envelope.Error[0] != '{' || json.Unmarshal(envelope.Error, &p) != nil {
		return p
	}
	p.object = true
	if json.Unmarshal(p.Inner, &p.inner) != nil {
		p.inner = innerError{}
	}
	return p
}

// filtered reports that the content filter, or the model's own policy check, refused the input.
func (p problem) filtered() bool {
	return p.Code == "content_filter" || p.Code == "invalid_prompt" || p.inner.Code == "ResponsibleAIPolicyViolation"
}

func (p problem) answer() *Answer {
	a := &Answer{Kind: PromptFiltered}
	a.filter(p.inner.filterResults, true)
	return a
}

func (p problem) quota() bool {
	return p.Code == "insufficient_quota" || p.Type == "insufficient_quota"
}

// media reports that the code is about a part that is not text, such as invalid_image_format or unsupported_file.
func (p problem) media() bool {
	code := string(p.Code)
	if !strings.HasPrefix(code, "invalid_") && !strings.HasPrefix(code, "unsupported_") {
		return false
	}
	return strings.Contains(code, "image") || strings.Contains(code, "audio") || strings.Contains(code, "file")
}
