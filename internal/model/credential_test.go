package model_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"millrace/internal/model"
)

// issuer hands out numbered tokens that live an hour.
type issuer struct {
	mu    sync.Mutex
	n     int
	takes time.Duration
	err   error
}

func (i *issuer) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	i.mu.Lock()
	i.n++
	n, takes, err := i.n, i.takes, i.err
	i.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return azcore.AccessToken{}, ctx.Err()
	}
	if err != nil {
		return azcore.AccessToken{}, err
	}
	return azcore.AccessToken{Token: fmt.Sprint(n), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestCredentialAsksOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &issuer{takes: time.Second}
		c := model.NewCredential(source)
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				if token, err := c.GetToken(t.Context(), policy.TokenRequestOptions{}); err != nil || token.Token != "1" {
					t.Errorf("GetToken = %q, %v, want token 1", token.Token, err)
				}
			})
		}
		callers.Wait()
		if source.n != 1 {
			t.Errorf("the source was asked %d times, want 1", source.n)
		}
	})
}

func TestCredentialLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &issuer{}
		c := model.NewCredential(source)
		start := time.Now()
		down := errors.New("identity service is down")
		for _, step := range []struct {
			at     time.Duration
			claims string
			down   bool
			want   string // empty: an error
			asked  int
		}{
			{at: 0, want: "1", asked: 1},
			{at: 54 * time.Minute, want: "1", asked: 1},
			{at: 55 * time.Minute, down: true, want: "1", asked: 2},
			{at: 55*time.Minute + 29*time.Second, down: true, want: "1", asked: 2},
			{at: 55*time.Minute + 30*time.Second, down: true, want: "1", asked: 3},
			{at: 60 * time.Minute, down: true, want: "", asked: 4},
			{at: 61 * time.Minute, want: "5", asked: 5},
			{at: 62 * time.Minute, claims: "more", want: "6", asked: 6},
			{at: 63 * time.Minute, want: "6", asked: 6},
			{at: 64 * time.Minute, claims: "more", down: true, want: "", asked: 7},
		} {
			<-time.After(step.at - time.Since(start)) // virtual
			source.err = nil
			if step.down {
				source.err = down
			}
			token, err := c.GetToken(t.Context(), policy.TokenRequestOptions{Claims: step.claims})
			if token.Token != step.want || (err != nil) != (step.want == "") || source.n != step.asked {
				t.Errorf("at %v: GetToken = %q, %v, source asked %d times, want %q and %d", step.at, token.Token, err, source.n, step.want, step.asked)
			}
		}
	})
}

func TestCredentialWaiterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := model.NewCredential(&issuer{takes: time.Minute})
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := c.GetToken(t.Context(), policy.TokenRequestOptions{}); err != nil {
				t.Errorf("GetToken of the first = %v", err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := c.GetToken(ctx, policy.TokenRequestOptions{}); err == nil || time.Since(start) != time.Second {
			t.Errorf("GetToken of a waiter = %v after %v, want an error after 1s", err, time.Since(start))
		}
		first.Wait()
	})
}
