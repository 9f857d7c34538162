package modeltest

import (
	"crypto/sha256"
	"time"
	"unicode/utf8"
)

// Deployment is one model deployment and its limits.
type Deployment struct {
	// Model is the model version that responses name.
	// Default: "gpt-4.1-mini-2025-04-14".
	Model string
	// TPM is the limit of tokens in any 60 s. Default: no limit.
	TPM int
	// RPM is the limit of requests per minute, judged as a sixth of it in any 10 s.
	// Default: no limit.
	RPM int
	// ContextWindow is the most tokens of prompt and requested output together.
	// Default: 128,000.
	ContextWindow int
	// MaxOutput is the most output tokens of one choice, and what is charged for a
	// request that names no maximum. Default: 16,384.
	MaxOutput int
	// CharactersPerToken is the ratio by which the prompt is counted: characters
	// (code points) of all message text over it, rounded up. Default: 4.
	CharactersPerToken float64
	// AnswerTokens is the least length of a text answer. Default: that of the digest.
	AnswerTokens int
	// ReasoningTokens makes this a reasoning model: every choice spends that many
	// tokens before its text, and sampling parameters are refused. Default: 0.
	ReasoningTokens int
	// MaxTokens accepts max_tokens as older models do. Default: it is refused.
	MaxTokens bool
	// FixedMinute counts tokens from each full minute of the clock in place of a
	// sliding window, as the documentation of the service words it. Default: sliding.
	FixedMinute bool
	// SecondBursts also refuses more than a sixtieth of RPM in any second.
	// Default: the 10 s rule alone.
	SecondBursts bool
	// Refund gives back what an answer did not use when it is finished.
	// Default: a charge stays for its whole minute.
	Refund bool
	// CountRejected charges requests that were answered with 429 or 400 as well.
	// Default: only admitted requests count.
	CountRejected bool
}

func (d Deployment) withDefaults() Deployment {
	if d.Model == "" {
		d.Model = "gpt-4.1-mini-2025-04-14"
	}
	if d.ContextWindow <= 0 {
		d.ContextWindow = 128_000
	}
	if d.MaxOutput <= 0 {
		d.MaxOutput = 16_384
	}
	if d.CharactersPerToken <= 0 {
		d.CharactersPerToken = 4
	}
	return d
}

// deployment is the live state of a Deployment. It is guarded by the server's mutex.
type deployment struct {
	Deployment
	meter  meter
	cached map[[sha256.Size]byte]bool // system texts seen, by hash
}

// SetLimit changes the limits of a deployment from now on; 0 is no limit. What is
// in the windows stays there. A name that does not exist is ignored.
func (s *Server) SetLimit(deployment string, tpm, rpm int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.find(deployment); state != nil {
		state.TPM, state.RPM = tpm, rpm
	}
}

// Spend is a call by another consumer of a deployment: it uses up one request and
// the given tokens if they are within limits, and reports whether they were. It
// appears in the windows and the headers, not in Stats or the peaks.
func (s *Server) Spend(deployment string, tokens int) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.find(deployment)
	return state != nil && state.meter.spend(state.Deployment, now, tokens)
}

// find returns a deployment's live state, or nil. The mutex is held.
func (s *Server) find(name string) *deployment {
	if state := s.deployments[name]; state != nil {
		return state
	}
	d, ok := s.Deployments[name]
	if !ok && s.Deployments != nil || name == "" {
		return nil
	}
	if s.deployments == nil {
		s.deployments = map[string]*deployment{}
	}
	state := &deployment{Deployment: d.withDefaults(), cached: map[[sha256.Size]byte]bool{}}
	s.deployments[name] = state
	return state
}

// deployment returns the live state and a copy of the settings, or nil.
func (s *Server) deployment(name string) (*deployment, Deployment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.find(name)
	if state == nil {
		return nil, Deployment{}
	}
	return state, state.Deployment
}

// reject refuses a request before the meter.
func (s *Server) reject(state *deployment, x *exchange, e *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state.CountRejected {
		state.meter.enter(x.event.Arrival, x.event.Charge)
	}
	state.meter.headers(x.header, state.Deployment, x.event.Arrival)
	x.event.Kind = Reply
	x.refuse(e)
}

// limits puts the state of the meter on a response that does not pass it.
func (s *Server) limits(state *deployment, x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state.meter.headers(x.header, state.Deployment, x.event.Arrival)
}

// admit asks the meter, under the limits as they are now.
func (s *Server) admit(state *deployment, x *exchange) (ruling, Deployment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := state.meter.admit(state.Deployment, x.event.Arrival, x.event.Charge)
	state.meter.headers(x.header, state.Deployment, x.event.Arrival)
	switch r.limit {
	case limitTokens:
		s.stats.Tokens429++
	case limitRequests:
		s.stats.Requests429++
	case limitOversize:
		s.stats.Oversize429++
	default:
		x.event.Admitted = true
		s.stats.Calls++
		s.stats.Charged += x.event.Charge
		s.inputs[x.hash].calls++
		s.notify()
	}
	return r, state.Deployment
}

// run bills one run of the model and returns the cached part of its prompt. It is
// billed at once: a client that leaves does not stop it.
func (s *Server) run(state *deployment, x *exchange, q *request, k Kind, a answer) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := q.usage(state.Deployment, a)
	x.event.Prompt, x.event.Completion = u.Prompt, u.Completion
	cached := 0
	system := sha256.Sum256([]byte(q.system))
	if n := cachedTokens(q, state.Deployment); n > 0 && k != PromptFiltered {
		if state.cached[system] {
			cached = n
		}
		state.cached[system] = true
	}
	s.stats.Prompt += u.Prompt
	s.stats.Cached += cached
	s.stats.Completion += u.Completion
	return cached
}

// settle refunds the part of the estimate that was not used, where the deployment
// does so.
func (s *Server) settle(state *deployment, x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unused := x.event.Charge - x.event.Prompt - x.event.Completion
	if !state.Refund || unused <= 0 {
		return
	}
	state.meter.tokens.refund(x.event.Arrival, unused)
	s.stats.Refunded += unused
}

// cachedTokens is the part of a prompt that a system text already seen takes: whole
// pieces of 128 tokens from 1,024 on (Azure OpenAI documentation, "Prompt caching").
func cachedTokens(q *request, d Deployment) int {
	n := tokens(utf8.RuneCountInString(q.system), d)
	if n < 1024 {
		return 0
	}
	return n / 128 * 128
}
