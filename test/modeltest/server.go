// Package modeltest is a server that answers chat completions in the shape of Azure
// OpenAI and meters tokens the way the service does: at arrival, on an estimate.
//
// Both paths of the service are served: /openai/deployments/{name}/chat/completions
// with an api-version, and /openai/v1/chat/completions with the deployment in the
// body. Answers are a function of the request, refusals have the service's bodies
// and headers, and Behave can make any single call go wrong in the ways that real
// ones do. The package uses nothing but the standard library, so that it is a second
// opinion on the wire and not a mirror of the client.
//
// A Server is an http.Handler and starts no goroutine as one. All its waiting is by
// timers, so it may live inside a synctest bubble behind a listener in memory.
package modeltest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is the model service. Its zero value is ready: it takes any credential and
// knows every deployment name, without limits. Fields are set before the first
// request; what may change later has a method.
type Server struct {
	// Deployments are the deployments by name. Default (nil, not empty): every name
	// exists with the defaults of Deployment.
	Deployments map[string]Deployment
	// APIKey is accepted as an api-key header or a bearer token.
	// Default: no key is accepted, or every request if Token is nil too.
	APIKey string
	// Token judges bearer tokens other than APIKey. Default: none is accepted.
	Token func(bearer string) bool
	// Latency is how long a call takes, given its prompt tokens and all its output
	// tokens. Default: no time at all.
	Latency func(promptTokens, outputTokens int) time.Duration
	// Behave decides what happens to each call. It may be called concurrently.
	// Default: every call is answered.
	Behave func(Call) Behaviour
	// Observe is told of every request that reached a deployment, before its
	// response is written. It may be called concurrently. Default: nobody is told.
	Observe func(Event)

	mu          sync.Mutex
	deployments map[string]*deployment
	inputs      map[[sha256.Size]byte]*input
	stats       Stats
	active      int           // handlers running
	changed     chan struct{} // closed at the next change of stats or active; nil if nobody waits
	network     network
}

// exchange is one request on its way through the server.
type exchange struct {
	event  Event
	hash   [sha256.Size]byte // of the user text
	header http.Header       // of the response
	status int
	body   []byte
	cut    Kind // CutBefore, CutWithin or CutAfter, else Answer
}

// ServeHTTP answers one request. Where a behaviour breaks the connection it panics
// with http.ErrAbortHandler, as net/http asks handlers to.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{event: Event{Arrival: time.Now()}, header: w.Header()}
	s.begin(x)
	defer s.end()
	s.handle(x, r)
	s.finish(x)
	x.write(w)
}

func (s *Server) handle(x *exchange, r *http.Request) {
	name, inBody, ok := route(r)
	if !ok {
		x.refuse(notFound())
		return
	}
	body, err := readBody(r)
	var refusal *apiError
	switch {
	case errors.As(err, &refusal):
		x.refuse(refusal)
		return
	case err != nil:
		x.cut = CutBefore // the client is gone
		return
	}
	if !s.authorised(r.Header) {
		x.refuse(unauthorized())
		return
	}
	q, refusal := parse(body)
	if refusal != nil {
		x.refuse(refusal)
		return
	}
	if inBody {
		name = q.model
	}
	s.call(x, r, q, name)
}

// call takes a request that could be read to its deployment.
func (s *Server) call(x *exchange, r *http.Request, q *request, name string) {
	state, d := s.deployment(name)
	if state == nil {
		x.refuse(deploymentNotFound())
		return
	}
	x.header.Set("x-ms-deployment-name", name)
	x.hash = q.hash
	x.event.Deployment = name
	x.event.SHA256 = hex.EncodeToString(q.hash[:])
	x.event.Attempt = s.arrive(q.hash, x.event.Arrival)
	refusal := q.validate(d)
	if refusal == nil {
		x.event.Charge = q.charge(d)
		refusal = q.fits(d)
	}
	if refusal != nil {
		s.reject(state, x, refusal)
		return
	}
	var b Behaviour
	if s.Behave != nil {
		b = s.Behave(Call{
			Deployment: name, System: q.system, User: q.user, SHA256: x.event.SHA256, Attempt: x.event.Attempt,
			Arrival: x.event.Arrival, Charge: x.event.Charge, Header: r.Header,
		})
	}
	x.event.Kind = b.Kind
	s.behave(x, r.Context(), q, state, b)
	b.apply(x.header)
}

// behave carries out what was decided for a call.
func (s *Server) behave(x *exchange, ctx context.Context, q *request, state *deployment, b Behaviour) {
	switch {
	case b.Kind == CutBefore:
		x.cut = CutBefore
		return
	case b.Kind == Reply && !b.Charged:
		s.limits(state, x)
		x.reply(b)
		s.wait(ctx, b.Delay)
		return
	}
	r, d := s.admit(state, x)
	if r.limit != withinLimits {
		x.event.Kind = Reply
		x.header.Set("retry-after-ms", strconv.Itoa(milliseconds(r.retry)))
		x.header.Set("retry-after", strconv.Itoa(seconds(r.retry)))
		x.refuse(limited(r))
		return
	}
	if b.Kind == Reply {
		x.reply(b)
		s.wait(ctx, b.Delay)
		return
	}
	a := q.answer(d, b.Text).bend(b.Kind, d, q.limit(d))
	a.cached = s.run(state, x, q, b.Kind, a)
	if b.Kind == Hang {
		<-ctx.Done()
		x.cut = CutAfter
		return
	}
	delay := b.Delay
	if s.Latency != nil {
		delay += s.Latency(x.event.Prompt, x.event.Completion)
	}
	if !s.wait(ctx, delay) {
		x.cut = CutAfter // the client left; the model ran all the same
		return
	}
	s.settle(state, x)
	switch b.Kind {
	case PromptFiltered:
		x.refuse(promptFiltered())
		return
	case CutAfter, CutWithin:
		x.cut = b.Kind
	}
	x.status = http.StatusOK
	x.body = q.render(d, b.Kind, a, "chatcmpl-"+x.event.SHA256[:12]+strconv.Itoa(x.event.Attempt), x.event.Arrival.Unix())
}

// wait reports whether d passed before the client gave up.
func (s *Server) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// route splits the path. On the v1 path the deployment is named in the body.
func route(r *http.Request) (name string, inBody, ok bool) {
	if r.Method != http.MethodPost {
		return "", false, false
	}
	if r.URL.Path == "/openai/v1/chat/completions" {
		return "", true, true
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/openai/deployments/")
	if !ok {
		return "", false, false
	}
	name, ok = strings.CutSuffix(rest, "/chat/completions")
	ok = ok && name != "" && !strings.Contains(name, "/") && r.URL.Query().Get("api-version") != ""
	return name, false, ok
}

func (s *Server) authorised(h http.Header) bool {
	s.mu.Lock()
	key := s.APIKey
	s.mu.Unlock()
	if key == "" && s.Token == nil {
		return true
	}
	bearer, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	if key != "" && (h.Get("api-key") == key || bearer == key) {
		return true
	}
	return bearer != "" && s.Token != nil && s.Token(bearer)
}

// SetAPIKey replaces APIKey, as a rotation does.
func (s *Server) SetAPIKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.APIKey = key
}

// refuse answers with an error of the service.
func (x *exchange) refuse(e *apiError) {
	x.status, x.body = e.status, e.body()
	x.event.Code = e.code
}

func (x *exchange) reply(b Behaviour) {
	x.status, x.body = b.Status, b.Body
	if x.status == 0 {
		x.status = http.StatusOK
	}
}

func (x *exchange) write(w http.ResponseWriter) {
	if x.cut == CutBefore || x.cut == CutAfter {
		panic(http.ErrAbortHandler)
	}
	if x.header.Get("Content-Type") == "" {
		x.header.Set("Content-Type", "application/json")
	}
	x.header.Set("Content-Length", strconv.Itoa(len(x.body)))
	w.WriteHeader(x.status)
	if x.cut != CutWithin {
		_, _ = w.Write(x.body) // a client that is gone has been counted already
		return
	}
	_, _ = w.Write(x.body[:len(x.body)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// requestID is shaped as a UUID and counts requests.
func requestID(n int) string {
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", n)
}
