package model

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The bounds of a wait that the service asks for.
const (
	// MinRetryAfter is the least wait reported. Peers ask for a few milliseconds while the whole fleet waits for the same moment.
	MinRetryAfter = 500 * time.Millisecond
	// MaxRetryAfter is the longest wait reported. The service asks for a day when a request can never fit.
	MaxRetryAfter = 24 * time.Hour
)

// retryAfter returns the wait that h asks for, clamped to [MinRetryAfter, MaxRetryAfter], or zero if no header has a usable one.
//
// The headers are tried in the order of their precision: retry-after-ms, x-ms-retry-after-ms, retry-after (RFC 9110 section
// 10.2.3: seconds, here with fractions too, or an HTTP date). A zero, negative or unreadable value counts as absent, so the next
// header is tried. A date is measured from the response's own Date, which makes the clocks' difference irrelevant; now is used
// if there is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if d := delay(h.Get(name), time.Millisecond); d > 0 {
			return d
		}
	}
	value := h.Get("Retry-After")
	if d := delay(value, time.Second); d > 0 {
		return d
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	if wait := at.Sub(now); wait > 0 {
		return clampDelay(float64(wait))
	}
	return 0
}

func delay(value string, unit time.Duration) time.Duration {
	f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	overflow := errors.Is(err, strconv.ErrRange) && f > 0
	if err != nil && !overflow {
		return 0
	}
	if math.IsNaN(f) || math.IsInf(f, 0) && !overflow || f <= 0 {
		return 0
	}
	return clampDelay(f * float64(unit))
}

func clampDelay(nanoseconds float64) time.Duration {
	return time.Duration(max(float64(MinRetryAfter), min(nanoseconds, float64(MaxRetryAfter))))
}

// RateLimits are the x-ratelimit headers of a response; -1 stands for a header that was absent or unreadable. The unit of the
// request counts differs between models (per minute or per ten seconds), so only their ratio means something.
type RateLimits struct {
	LimitTokens, RemainingTokens     int
	LimitRequests, RemainingRequests int
}

func rateLimits(h http.Header) RateLimits {
	return RateLimits{
		LimitTokens:       limit(h.Get("X-Ratelimit-Limit-Tokens")),
		RemainingTokens:   limit(h.Get("X-Ratelimit-Remaining-Tokens")),
		LimitRequests:     limit(h.Get("X-Ratelimit-Limit-Requests")),
		RemainingRequests: limit(h.Get("X-Ratelimit-Remaining-Requests")),
	}
}

func limit(value string) int {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return int(min(n, maxCount))
}

// requestID returns the id that the service gave the request.
func requestID(h http.Header) string {
	for _, name := range []string{"Apim-Request-Id", "X-Ms-Request-Id", "X-Request-Id"} {
		if id := identifier(h.Get(name)); id != "" {
			return id
		}
	}
	return ""
}
