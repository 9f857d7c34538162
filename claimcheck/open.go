package claimcheck

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// Open makes the client of one storage account, given as Reference.Account. It must pass options on to the SDK: they hold
// the Store's retries, its time limits and the refusal to follow redirects. It may add to them. It sends nothing and is
// called once per account.
type Open func(account string, options *service.ClientOptions) (*service.Client, error)

// OpenIdentity opens every account with a token credential.
func OpenIdentity(credential azcore.TokenCredential) Open {
	return func(account string, options *service.ClientOptions) (*service.Client, error) {
		return service.NewClient(account+"/", credential, options)
	}
}

// OpenConnectionString opens the one account of a storage connection string and refuses every other, so that its key is
// never used elsewhere.
func OpenConnectionString(connectionString string) Open {
	return func(account string, options *service.ClientOptions) (*service.Client, error) {
		client, err := service.NewClientFromConnectionString(connectionString, options)
		if err != nil {
			return nil, err
		}
		endpoint, _, _ := strings.Cut(client.URL(), "?")
		if !strings.EqualFold(strings.TrimSuffix(endpoint, "/"), account) {
			return nil, fmt.Errorf("the connection string is for another account than %s", account)
		}
		return client, nil
	}
}

// clientOptions are the only retries below the worker's own: three tries within a few seconds, for what is over by then.
// A longer Retry-After is returned at once, since waiting is the caller's decision.
func clientOptions(transport http.RoundTripper) *service.ClientOptions {
	var options service.ClientOptions
	options.Retry = policy.RetryOptions{
		MaxRetries:    2,
		TryTimeout:    30 * time.Second,
		RetryDelay:    200 * time.Millisecond,
		MaxRetryDelay: 2 * time.Second,
	}
	options.Transport = &http.Client{
		Transport: transport,
		// A redirect would take the token to a host that no policy has seen.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &options
}

// newTransport differs from net/http's default in what a worker needs: a connection for each of many slots at one host,
// where the default keeps two.
func newTransport(connections int) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: connections,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
	}
}
