package blobtest

import (
	"net/http"
	"strings"
	"time"
)

// conditions are the conditional headers of one request, as in "Specifying conditional headers for Blob service
// operations".
type conditions struct {
	match, noneMatch           []string // ETags without quotes, or "*"
	modifiedSince, unmodified  time.Time
	anyMatch, anyNone          bool // the header is present
	hasModified, hasUnmodified bool
}

func parseConditions(h http.Header) (conditions, *failure) {
	var c conditions
	c.match, c.anyMatch = etags(h, "If-Match")
	c.noneMatch, c.anyNone = etags(h, "If-None-Match")
	var err error
	if v := h.Get("If-Modified-Since"); v != "" {
		c.hasModified = true
		if c.modifiedSince, err = http.ParseTime(v); err != nil {
			return c, failed("InvalidHeaderValue")
		}
	}
	if v := h.Get("If-Unmodified-Since"); v != "" {
		c.hasUnmodified = true
		if c.unmodified, err = http.ParseTime(v); err != nil {
			return c, failed("InvalidHeaderValue")
		}
	}
	return c, nil
}

func etags(h http.Header, name string) ([]string, bool) {
	value := h.Get(name)
	if value == "" {
		return nil, false
	}
	var tags []string
	for tag := range strings.SplitSeq(value, ",") {
		tags = append(tags, strings.Trim(strings.TrimSpace(tag), `"`))
	}
	return tags, true
}

func contains(tags []string, etag string) bool {
	etag = strings.Trim(etag, `"`)
	for _, tag := range tags {
		if tag == "*" || tag == etag {
			return true
		}
	}
	return false
}

// read decides a read of something that exists:
// If-Match && If-Unmodified-Since && (If-None-Match || If-Modified-Since).
// What does not exist is 404 whatever the conditions say (RFC 9110, 13.2.1).
func (c conditions) read(etag string, modified time.Time) *failure {
	modified = modified.Truncate(time.Second) // the header carries no more
	if c.anyMatch && !contains(c.match, etag) {
		return failed("ConditionNotMet")
	}
	if c.hasUnmodified && modified.After(c.unmodified) {
		return failed("ConditionNotMet")
	}
	if c.anyNone && len(c.noneMatch) == 1 && c.noneMatch[0] == "*" {
		return failed("UnsatisfiableCondition")
	}
	if !c.anyNone && !c.hasModified {
		return nil
	}
	if c.anyNone && !contains(c.noneMatch, etag) {
		return nil
	}
	if c.hasModified && modified.After(c.modifiedSince) {
		return nil
	}
	unchanged := failed("ConditionNotMet")
	unchanged.status = http.StatusNotModified
	return unchanged
}

// write decides a write. The two ETag headers win over the two time headers, and only the documented pairs may come
// together. With create set (Put Blob, Put Block List) an If-None-Match: * on something that exists is the service's
// 409 BlobAlreadyExists, and on something that does not exist only If-Match can fail.
func (c conditions) write(exists, create bool, etag string, modified time.Time) *failure {
	if len(c.match) > 1 || len(c.noneMatch) > 1 || c.mixed() {
		return failed("MultipleConditionHeadersNotSupported")
	}
	if !exists {
		if c.anyMatch {
			return failed("ConditionNotMet")
		}
		return nil
	}
	modified = modified.Truncate(time.Second)
	switch {
	case c.anyNone && create && c.noneMatch[0] == "*":
		return failed("BlobAlreadyExists")
	case c.anyNone:
		if contains(c.noneMatch, etag) {
			return failed("ConditionNotMet")
		}
	case c.anyMatch:
		if !contains(c.match, etag) {
			return failed("ConditionNotMet")
		}
	case c.hasModified:
		if !modified.After(c.modifiedSince) {
			return failed("ConditionNotMet")
		}
	case c.hasUnmodified:
		if modified.After(c.unmodified) {
			return failed("ConditionNotMet")
		}
	}
	return nil
}

// mixed: a write may carry one condition, or If-None-Match with If-Modified-Since, or If-Match with
// If-Unmodified-Since.
func (c conditions) mixed() bool {
	return (c.anyNone || c.hasModified) && (c.anyMatch || c.hasUnmodified)
}
