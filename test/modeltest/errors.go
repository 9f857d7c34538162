package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// apiError is a refusal in one of the shapes of the service: a short one of code
// and message from its front, a long one with type and param from behind it.
type apiError struct {
	status  int
	code    string
	message string
	kind    string // error.type
	param   string
	inner   any // error.innererror
	short   bool
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s", e.status, e.code) }

func (e *apiError) body() []byte {
	fields := map[string]any{"message": e.message, "code": nullable(e.code)}
	if !e.short {
		fields["type"] = nullable(e.kind)
		fields["param"] = nullable(e.param)
	}
	if e.inner != nil {
		fields["status"] = e.status
		fields["innererror"] = e.inner
	}
	return encode(map[string]any{"error": fields})
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// encode marshals values this package built itself, which cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("modeltest: encode: %v", err))
	}
	return b
}

// invalid is a 400 about one parameter.
func invalid(code, param, format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusBadRequest, code: code, param: param,
		kind: "invalid_request_error", message: fmt.Sprintf(format, args...),
	}
}

func notFound() *apiError {
	return &apiError{status: http.StatusNotFound, code: "404", message: "Resource not found", short: true}
}

func unauthorized() *apiError {
	return &apiError{
		status: http.StatusUnauthorized, code: "401", short: true,
		message: "Access denied: the subscription key is not valid or the endpoint is not the one it belongs to.",
	}
}

func deploymentNotFound() *apiError {
	return &apiError{
		status: http.StatusNotFound, code: "DeploymentNotFound", short: true,
		message: "This resource has no API deployment of that name. A deployment made within the last 5 minutes may need a moment.",
	}
}

func tooLarge(limit int64) *apiError {
	return &apiError{
		status: http.StatusRequestEntityTooLarge, code: "request_too_large", kind: "invalid_request_error",
		message: fmt.Sprintf("The request body is larger than %d bytes.", limit),
	}
}

func contextLength(window, prompt, output int) *apiError {
	if output > 0 {
		return invalid("context_length_exceeded", "messages",
			"This model's maximum context length is %d tokens. However, you asked for %d tokens: %d in the messages and %d in the completion.",
			window, prompt+output, prompt, output)
	}
	return invalid("context_length_exceeded", "messages",
		"This model's maximum context length is %d tokens. However, your messages came to %d tokens.", window, prompt)
}

// limited is the 429 of the meter. The words token and call in the message are the
// only mark by which a client can tell the two limits apart.
func limited(r ruling) *apiError {
	what := "token"
	if r.limit == limitRequests {
		what = "call"
	}
	return &apiError{
		status: http.StatusTooManyRequests, code: "429",
		message: fmt.Sprintf("Requests to this deployment have exceeded the %s rate limit of its pricing tier. Please retry after %d seconds.", what, seconds(r.retry)),
	}
}

func promptFiltered() *apiError {
	return &apiError{
		status: http.StatusBadRequest, code: "content_filter", param: "prompt",
		message: "The response was filtered because the prompt triggered the content management policy.",
		inner: map[string]any{
			"code":                  "ResponsibleAIPolicyViolation",
			"content_filter_result": filterResults("violence"),
		},
	}
}

// filterResults is the verdict of the four content categories, of which the named
// one was filtered. No name means that all are safe.
func filterResults(filtered string) map[string]any {
	results := map[string]any{}
	for _, category := range []string{"hate", "self_harm", "sexual", "violence"} {
		severity := "safe"
		if category == filtered {
			severity = "medium"
		}
		results[category] = map[string]any{"filtered": category == filtered, "severity": severity}
	}
	return results
}
