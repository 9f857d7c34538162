package modeltest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Call is what a Behave function sees of one well-formed request: it was
// authorised, its deployment exists and its parameters are in order, but the meter
// has not judged it yet.
type Call struct {
	Deployment string // name of the deployment
	System     string // text of the system and developer messages
	User       string // text of the user messages
	SHA256     string // of User, in lower-case hex
	Attempt    int    // 1 for the first time this input arrived at this server
	Arrival    time.Time
	Charge     int // tokens the meter would count for it
	Header     http.Header
}

// Kind names a behaviour.
type Kind int

// The kinds of behaviour. All but Reply and CutBefore pass the meter first, so that
// the request is charged and counts as a call, or is refused with 429 instead.
const (
	Answer            Kind = iota // the deterministic answer, or Text
	PromptFiltered                // 400 content_filter; the prompt is billed
	OutputFiltered                // 200, finish_reason content_filter, a message without content
	OutputFilteredCut             // the same with the first half of the text
	ModelRefusal                  // 200, content null, message.refusal
	NoChoices                     // 200, choices empty, usage null
	EmptyText                     // 200, content "", finish_reason stop, no filter
	OutputLimit                   // 200, finish_reason length, half of the text
	ReasoningLimit                // 200, finish_reason length, content "", all output was reasoning
	Reply                         // Status, Header and Body as given; metered if Charged
	Hang                          // the model runs, the answer never comes: until the client gives up
	CutBefore                     // the connection breaks before the meter: nothing is charged
	CutWithin                     // the model runs, the connection breaks in the middle of the body
	CutAfter                      // the model runs, the connection breaks before the first byte
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	names := [...]string{
		"answer", "prompt_filtered", "output_filtered", "output_filtered_cut", "model_refusal", "no_choices",
		"empty_text", "output_limit", "reasoning_limit", "reply", "hang", "cut_before", "cut_within", "cut_after",
	}
	if k < 0 || int(k) >= len(names) {
		return "kind(" + strconv.Itoa(int(k)) + ")"
	}
	return names[k]
}

// Behaviour is what happens to one call. Its zero value is the plain answer.
type Behaviour struct {
	Kind Kind
	// Text replaces the text of an Answer. Default: a digest of the request.
	Text string
	// Delay is waited in addition to the server's Latency. Default: none.
	Delay time.Duration
	// Header is set on the response in place of what the server would send under
	// the same names; a name with no values removes the header. It applies to a
	// refusal of the meter too. Default: nothing is changed.
	Header http.Header
	// Status and Body are those of a Reply. Default: 200 and an empty body.
	Status int
	Body   []byte
	// Charged makes a Reply pass the meter and count as a call. Default: neither.
	Charged bool
}

// Unauthorized is the 401 of a wrong or expired credential.
func Unauthorized() Behaviour { return reply(unauthorized()) }

// Forbidden is the 403 of a principal that has no data role on the resource.
func Forbidden() Behaviour {
	return reply(&apiError{
		status: http.StatusForbidden, code: "PermissionDenied", short: true,
		message: "The principal lacks the data action that is required for this operation.",
	})
}

// DeploymentNotFound is the 404 of a deployment that does not exist.
func DeploymentNotFound() Behaviour { return reply(deploymentNotFound()) }

// InsufficientQuota is the 429 of billing. It says nothing about when to come back.
func InsufficientQuota() Behaviour {
	return reply(&apiError{
		status: http.StatusTooManyRequests, code: "insufficient_quota", kind: "insufficient_quota",
		message: "You have used up your current quota. Please check your plan and billing details.",
	})
}

// Capacity is the 429 of a service short of machines: it speaks of demand, not of
// this deployment's rate limits, and comes however little of them is used.
func Capacity(retry time.Duration) Behaviour {
	b := reply(&apiError{
		status: http.StatusTooManyRequests, code: "429",
		message: "The system is experiencing high demand and cannot serve your request now. Please retry later.",
	})
	b.Header.Set("retry-after-ms", strconv.Itoa(milliseconds(retry)))
	b.Header.Set("retry-after", strconv.Itoa(seconds(retry)))
	return b
}

// Throttled is a 429 in the words of the token limit, whatever the meter says, with
// exactly the headers given and no others about retrying.
func Throttled(header http.Header) Behaviour {
	b := reply(limited(ruling{limit: limitTokens, retry: time.Second}))
	for name, values := range header {
		b.Header[http.CanonicalHeaderKey(name)] = values
	}
	return b
}

// BadGateway is the 502 of a proxy in front of the service: a page of HTML.
func BadGateway() Behaviour {
	return Behaviour{
		Kind: Reply, Status: http.StatusBadGateway,
		Header: http.Header{"Content-Type": {"text/html"}},
		Body:   []byte("<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\r\n"),
	}
}

// ServerError is an error of the service itself, such as 500 or 503.
func ServerError(status int) Behaviour {
	return reply(&apiError{
		status: status, code: strconv.Itoa(status), kind: "server_error",
		message: "The server had an error while processing your request. Please retry it.",
	})
}

// ContextLength is the 400 of a prompt that is longer than the model can read,
// whatever its real length.
func ContextLength() Behaviour { return reply(contextLength(128_000, 192_041, 0)) }

// InvalidImage is the 400 of a picture that the service cannot read.
func InvalidImage() Behaviour {
	return reply(invalid("invalid_image_format", "", "You uploaded an image that is not supported. Please make sure that it is a valid one."))
}

func reply(e *apiError) Behaviour {
	return Behaviour{
		Kind: Reply, Status: e.status, Body: e.body(),
		Header: http.Header{"Content-Type": {"application/json"}},
	}
}

// ParseReply reads a whole HTTP/1.1 response (status line, headers, blank line,
// body up to the end) as a Reply. Lines may end in LF alone.
func ParseReply(raw []byte) (Behaviour, error) {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		return Behaviour{}, fmt.Errorf("parse reply: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // reads from memory
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Behaviour{}, fmt.Errorf("parse reply body: %w", err)
	}
	resp.Header.Del("Content-Length")
	return Behaviour{Kind: Reply, Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// apply puts the behaviour's headers over those of the server.
func (b Behaviour) apply(h http.Header) {
	for name, values := range b.Header {
		name = http.CanonicalHeaderKey(name)
		if len(values) == 0 {
			delete(h, name)
			continue
		}
		h[name] = values
	}
}
