package modeltest

import (
	"net/http"
	"strconv"
	"time"
)

// limitKind says which limit refused a request.
type limitKind int

const (
	withinLimits  limitKind = iota
	limitTokens             // the minute's tokens are used up
	limitRequests           // the last ten seconds (or second) hold too many requests
	limitOversize           // larger than the whole limit: no wait would help
)

// requestSpan is the rolling span of the request limit, which then allows a sixth
// of the requests per minute ("typically 1 or 10 seconds", Azure OpenAI quota
// documentation, "Understanding rate limits").
const requestSpan = 10 * time.Second

// meter is the accounting of one deployment. Everything is judged at the arrival
// of a request, on its estimate.
type meter struct {
	tokens   window // counted against the limit
	requests window // counted against the request limit
	accepted window // charges of admitted calls, for PeakMinute
	offered  window // charges of all calls that reached the meter, for PeakOffered
}

// ruling is what the meter decided about one request.
type ruling struct {
	limit limitKind
	retry time.Duration // how long until it could be admitted
}

// admit judges a request that arrived at the instant at with the given estimate,
// and enters it when it is within limits.
func (m *meter) admit(d Deployment, at time.Time, estimate int) ruling {
	m.offered.add(at, estimate)
	r := m.judge(d, at, estimate)
	if r.limit == withinLimits {
		m.enter(at, estimate)
		m.accepted.add(at, estimate)
	} else if d.CountRejected {
		m.enter(at, estimate)
	}
	return r
}

// spend is admit for another consumer of the deployment.
func (m *meter) spend(d Deployment, at time.Time, tokens int) bool {
	if m.judge(d, at, tokens).limit != withinLimits {
		return false
	}
	m.enter(at, tokens)
	return true
}

func (m *meter) enter(at time.Time, tokens int) {
	m.tokens.add(at, tokens)
	m.requests.add(at, 1)
}

func (m *meter) judge(d Deployment, at time.Time, estimate int) ruling {
	if d.TPM > 0 && estimate > d.TPM {
		return ruling{limitOversize, 24 * time.Hour}
	}
	if d.RPM > 0 {
		wait := m.requests.wait(at, requestSpan, 1, perSpan(d.RPM, requestSpan))
		if d.SecondBursts {
			wait = max(wait, m.requests.wait(at, time.Second, 1, perSpan(d.RPM, time.Second)))
		}
		if wait > 0 {
			return ruling{limitRequests, wait}
		}
	}
	if d.TPM > 0 && m.used(d, at)+estimate > d.TPM {
		if d.FixedMinute {
			return ruling{limitTokens, at.Truncate(minute).Add(minute).Sub(at)}
		}
		return ruling{limitTokens, m.tokens.wait(at, minute, estimate, d.TPM)}
	}
	return ruling{}
}

// used returns the tokens that count against the limit at the instant at.
func (m *meter) used(d Deployment, at time.Time) int {
	if d.FixedMinute {
		return m.tokens.after(at.Truncate(minute).Add(-1))
	}
	return m.tokens.after(at.Add(-minute))
}

// headers reports the meter as the service does on every response. A deployment
// without a limit sends none of that limit's headers.
func (m *meter) headers(h http.Header, d Deployment, at time.Time) {
	if d.TPM > 0 {
		used := m.used(d, at)
		h.Set("x-ratelimit-limit-tokens", strconv.Itoa(d.TPM))
		h.Set("x-ratelimit-remaining-tokens", strconv.Itoa(max(0, d.TPM-used)))
		h.Set("x-ratelimit-reset-tokens", strconv.Itoa(seconds(m.reset(d, at))))
	}
	if d.RPM > 0 {
		allowed := perSpan(d.RPM, requestSpan)
		used := m.requests.after(at.Add(-requestSpan))
		h.Set("x-ratelimit-limit-requests", strconv.Itoa(d.RPM))
		h.Set("x-ratelimit-remaining-requests", strconv.Itoa(max(0, allowed-used)))
		h.Set("x-ratelimit-reset-requests", strconv.Itoa(seconds(m.requests.wait(at, requestSpan, allowed, allowed))))
	}
}

// reset returns how long until the whole limit is free again.
func (m *meter) reset(d Deployment, at time.Time) time.Duration {
	if d.FixedMinute {
		return at.Truncate(minute).Add(minute).Sub(at)
	}
	return m.tokens.wait(at, minute, d.TPM, d.TPM)
}

// perSpan is the part of a per-minute limit that one span allows, at least one.
func perSpan(perMinute int, span time.Duration) int {
	return max(1, perMinute*int(span/time.Second)/60)
}

// seconds rounds up: a client that waits that long is admitted.
func seconds(d time.Duration) int {
	return int((d + time.Second - 1) / time.Second)
}

func milliseconds(d time.Duration) int {
	return int((d + time.Millisecond - 1) / time.Millisecond)
}
