package claimcheck

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

// eventSegment stands for the correlation id in the name of a result whose claim has none. No correlation id equals it.
const eventSegment = "_"

// identityDomain is the first field of every identity, so that the hash of something else can never equal one.
const identityDomain = "millrace-work-1"

// WorkID returns the identity of the work that c asks for: 64 hexadecimal digits in lower case. It is a pure function of
// tenant, model, the canonical blob URL (a pinned version is part of it), the ETag and the run, and of nothing else: a
// redelivery, a second message and a message sent by another producer are the same work if these five are the same.
//
//	work_id = hex(SHA-256(net("millrace-work-1") + net(tenant) + net(model) + net(url) + net(etag) + net(run)))
//	net(s)  = decimal length of s in bytes + ":" + s + ","
//
// An absent ETag or run is the empty string. The error is Decode's *PoisonError.
func (c Claim) WorkID() (string, error) {
	if c.Version == "" {
		c.Version = Version
	}
	c.ETag = CanonicalETag(c.ETag)
	if err := c.validate(); err != nil {
		return "", err
	}
	ref, err := parseReference(c.Blob)
	if err != nil {
		return "", err
	}
	var b []byte
	for _, field := range []string{identityDomain, c.Tenant, c.Model, ref.String(), c.ETag, c.Run} {
		b = strconv.AppendInt(b, int64(len(field)), 10)
		b = append(b, ':')
		b = append(b, field...)
		b = append(b, ',')
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// ResultName returns the name of c's result in the results container: {tenant}/{correlation_id}/{work_id}.json, with "_"
// for the correlation id of a claim without one. The error is Decode's *PoisonError.
func (c Claim) ResultName() (string, error) {
	workID, err := c.WorkID()
	if err != nil {
		return "", err
	}
	return ResultName(c.Tenant, c.CorrelationID, workID)
}

// ResultName returns the name of a result from its parts. It refuses parts that would not be one segment each, so the
// name never leaves the tenant's folder.
func ResultName(tenant, correlationID, workID string) (string, error) {
	if !isTenant(tenant) {
		return "", fmt.Errorf("name result: tenant is not a valid tenant name")
	}
	if correlationID == "" {
		correlationID = eventSegment
	} else if !isSegment(correlationID, MaxCorrelationID) {
		return "", fmt.Errorf("name result: correlation id is not a valid one")
	}
	if !isWorkID(workID) {
		return "", fmt.Errorf("name result: work id is not 64 hexadecimal digits in lower case")
	}
	return tenant + "/" + correlationID + "/" + workID + ".json", nil
}

func isWorkID(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}
