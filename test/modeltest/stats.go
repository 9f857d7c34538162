package modeltest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"
)

// Event is what happened to one request that reached a deployment.
type Event struct {
	Arrival    time.Time     // when the handler started, which is what the meter judges by
	Took       time.Duration // from arrival to the moment before the response is written
	Deployment string
	SHA256     string // of the user text, in lower-case hex
	Attempt    int    // 1 for the first arrival of this input
	Kind       Kind   // the behaviour; Reply for a refusal of the meter
	Admitted   bool   // it passed the meter and counts as a call
	Status     int    // of the response, 0 when the connection was broken instead
	Code       string // error.code of a refusal that this server worded
	Charge     int    // estimate in tokens, counted if Admitted
	Prompt     int    // tokens of the prompt that are billed
	Completion int    // tokens of the output that are billed
}

// Stats counts what a server has seen. Tokens are summed over admitted calls.
type Stats struct {
	Requests    int            // HTTP requests of any kind
	Calls       int            // admitted: the model, or its filter, ran
	Tokens429   int            // refused by the token limit
	Requests429 int            // refused by the request limit
	Oversize429 int            // refused because larger than the whole limit
	Cut         int            // ended without a response: broken by a behaviour, or the client left
	Statuses    map[int]int    // responses by HTTP status
	Codes       map[string]int // refusals by error.code
	Charged     int            // estimates counted at arrival
	Refunded    int            // given back at completion
	Prompt      int            // billed prompt tokens
	Cached      int            // part of Prompt that was cached
	Completion  int            // billed output tokens
}

// Billed returns all tokens that were billed.
func (s Stats) Billed() int { return s.Prompt + s.Completion }

// input is what is known of one user text: no more than times and a count.
type input struct {
	arrivals []time.Time
	calls    int
}

// Stats returns a copy of the counters. A request is in them before its response is
// written.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.stats
	c.Statuses = maps.Clone(c.Statuses)
	c.Codes = maps.Clone(c.Codes)
	return c
}

// Calls returns how many calls were admitted.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats.Calls
}

// CallsOf returns how many calls were admitted for the user text with this SHA-256.
func (s *Server) CallsOf(sha256hex string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.input(sha256hex); in != nil {
		return in.calls
	}
	return 0
}

// Arrivals returns when requests for the user text with this SHA-256 arrived,
// admitted or not, in the order they were read.
func (s *Server) Arrivals(sha256hex string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.input(sha256hex); in != nil {
		return slices.Clone(in.arrivals)
	}
	return nil
}

// CallsPerInput returns the admitted calls of every input that arrived, by the
// SHA-256 of its user text.
func (s *Server) CallsPerInput() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int, len(s.inputs))
	for hash, in := range s.inputs {
		out[hex.EncodeToString(hash[:])] = in.calls
	}
	return out
}

func (s *Server) input(sha256hex string) *input {
	raw, err := hex.DecodeString(sha256hex)
	if err != nil || len(raw) != sha256.Size {
		return nil
	}
	return s.inputs[[sha256.Size]byte(raw)]
}

// PeakMinute returns the most tokens that were admitted to a deployment in any
// 60 s (half-open, judged at arrival on the estimates). What Spend used is not in it.
func (s *Server) PeakMinute(deployment string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.deployments[deployment]; state != nil {
		return state.meter.accepted.peak
	}
	return 0
}

// PeakOffered is PeakMinute over all calls that reached the meter, refused ones
// too: what clients sent, whatever the limit was.
func (s *Server) PeakOffered(deployment string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.deployments[deployment]; state != nil {
		return state.meter.offered.peak
	}
	return 0
}

// AwaitCalls returns when n calls have been admitted, or with the context's error.
func (s *Server) AwaitCalls(ctx context.Context, n int) error {
	return s.await(ctx, func() bool { return s.stats.Calls >= n })
}

// await returns when the condition, judged under the mutex, holds.
func (s *Server) await(ctx context.Context, condition func() bool) error {
	for {
		s.mu.Lock()
		if condition() {
			s.mu.Unlock()
			return nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// notify wakes those who await a change. The mutex is held.
func (s *Server) notify() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *Server) begin(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active++
	s.stats.Requests++
	x.header.Set("apim-request-id", requestID(s.stats.Requests))
	x.header.Set("x-ms-region", "Local")
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	s.notify()
}

// arrive enters an input and returns which attempt at it this is.
func (s *Server) arrive(hash [sha256.Size]byte, at time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inputs == nil {
		s.inputs = map[[sha256.Size]byte]*input{}
	}
	in := s.inputs[hash]
	if in == nil {
		in = &input{}
		s.inputs[hash] = in
	}
	in.arrivals = append(in.arrivals, at)
	return len(in.arrivals)
}

// finish counts the outcome and tells the observer.
func (s *Server) finish(x *exchange) {
	s.mu.Lock()
	if x.cut == CutBefore || x.cut == CutAfter {
		s.stats.Cut++
		x.status = 0
	} else {
		if s.stats.Statuses == nil {
			s.stats.Statuses = map[int]int{}
			s.stats.Codes = map[string]int{}
		}
		s.stats.Statuses[x.status]++
		if x.event.Code != "" {
			s.stats.Codes[x.event.Code]++
		}
	}
	s.notify()
	s.mu.Unlock()
	x.event.Status = x.status
	x.event.Took = time.Since(x.event.Arrival)
	if s.Observe != nil && x.event.Deployment != "" {
		s.Observe(x.event)
	}
}
