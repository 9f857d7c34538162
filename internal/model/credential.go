package model

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

const (
	// tokenMargin is how long before its end a token is replaced, if its issuer does not say when.
	tokenMargin = 5 * time.Minute
	// tokenRetry is the pause after a failed replacement while the old token is still good.
	tokenRetry = 30 * time.Second
)

// credential keeps the token of one deployment, and marks the errors of its source as what they are.
//
// openai-go v3.100.0 makes a new azcore token policy for every request, so nothing above keeps a token. Some sources of azidentity
// do and some start a process for each.
type credential struct {
	source azcore.TokenCredential
	turn   chan struct{} // holds one value while somebody asks the source

	mu       sync.Mutex
	token    azcore.AccessToken
	retryNot time.Time // no replacement before this
}

func newCredential(source azcore.TokenCredential) *credential {
	return &credential{source: source, turn: make(chan struct{}, 1)}
}

// GetToken implements [azcore.TokenCredential]; its error is a *tokenError. One caller at a time asks the source. The others wait
// if there is no good token, and use it if there is: an identity service that is down is noticed only when the token ends.
func (c *credential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if o.Claims == "" {
		if token, due := c.current(time.Now()); !due {
			return token, nil
		}
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	default:
		if token, good := c.good(time.Now()); good && o.Claims == "" {
			return token, nil
		}
		select {
		case c.turn <- struct{}{}:
			defer func() { <-c.turn }()
		case <-ctx.Done():
			return azcore.AccessToken{}, &tokenError{ctx.Err()}
		}
	}
	if token, due := c.current(time.Now()); !due && o.Claims == "" {
		return token, nil
	}
	token, err := c.source.GetToken(ctx, o)
	if err != nil {
		if old, good := c.good(time.Now()); good && o.Claims == "" {
			c.postpone(time.Now().Add(tokenRetry))
			return old, nil
		}
		return azcore.AccessToken{}, &tokenError{err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.retryNot = token, time.Time{}
	return token, nil
}

// current returns the token and whether the source is to be asked.
func (c *credential) current(t time.Time) (azcore.AccessToken, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	refresh := c.token.RefreshOn
	if refresh.IsZero() {
		refresh = c.token.ExpiresOn.Add(-tokenMargin)
	}
	due := !t.Before(refresh) && !t.Before(c.retryNot)
	return c.token, due || !t.Before(c.token.ExpiresOn)
}

// good returns the token and whether it can still be used.
func (c *credential) good(t time.Time) (azcore.AccessToken, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token, t.Before(c.token.ExpiresOn)
}

func (c *credential) postpone(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retryNot = until
}

// expire drops the token, after the service has refused it.
func (c *credential) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = azcore.AccessToken{}
}

// tokenError is the failure of a credential. Its text is fixed: that of the identity library contains response bodies.
type tokenError struct{ err error }

// Error implements error.
func (e *tokenError) Error() string { return "acquire token for the model deployment" }

// NonRetriable tells the pipeline above that asking again at once is no use.
func (e *tokenError) NonRetriable() {}

// tokenFailure tells an identity that may not have a token from an identity service that does not answer.
func (c *Client) tokenFailure(token *tokenError) *Error {
	failed, answered := errors.AsType[*azidentity.AuthenticationFailedError](token.err)
	if !answered {
		if _, unavailable := token.err.(interface{ NonRetriable() }); unavailable {
			// No credential is set up here: no environment, no managed identity, no login.
			return c.fail(Misconfigured, "credential", false, token)
		}
		return c.fail(Unavailable, "credential", false, token)
	}
	if failed.RawResponse == nil {
		return c.fail(Unavailable, "credential", false, token)
	}
	status := failed.RawResponse.StatusCode
	if status >= 400 && status < 500 && status != 408 && status != 429 {
		return c.fail(Misconfigured, "credential_rejected", false, token)
	}
	return c.fail(Unavailable, "credential", false, token)
}

var errBadKey = errors.New("api key is empty or not printable")

// checkKey returns an error whose text does not depend on the key.
func checkKey(key string, err error) error {
	if err != nil {
		return fmt.Errorf("read api key: %w", err)
	}
	key = strings.TrimSpace(key)
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errBadKey
	}
	return nil
}
