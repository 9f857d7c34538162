package model

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/azure"
	"github.com/openai/openai-go/v3/option"
)

// Deployment says where a model is and who asks. Exactly one of Key and Credential is set.
type Deployment struct {
	// Endpoint is the resource's base URL, such as https://acme.openai.azure.com, or that of a gateway, with its path.
	Endpoint string
	// Name is the name of the deployment.
	Name string
	// APIVersion is v1 for the undated API below /openai/v1, or a dated version from 2024-09-01 on: earlier ones do not know
	// max_completion_tokens. Default: v1.
	APIVersion string
	// Key returns the API key. It is asked before every call, so that a rotated key is used at once.
	Key func() (string, error)
	// Credential gets tokens for the scope https://cognitiveservices.azure.com/.default.
	Credential azcore.TokenCredential
	// TPM is the configured tokens-per-minute limit, used to recognise a request that can never fit where the response does not
	// name the limit. Zero if unknown.
	TPM int
}

// Options adjusts a Client. Nil stands for all defaults.
type Options struct {
	// Transport replaces the client's own transport, and with it ConnectTimeout, HeaderTimeout and Connections. Default: an
	// HTTP/1.1 transport of the client's own.
	Transport http.RoundTripper
	// ConnectTimeout bounds each of the connection and the TLS handshake. Default: 10 s.
	ConnectTimeout time.Duration
	// HeaderTimeout bounds the time from the request to the response's headers. Without streaming the headers come when the
	// answer is complete, so this is the time for the model's work. Default: 5 minutes.
	HeaderTimeout time.Duration
	// TotalTimeout bounds the whole call. Default: 6 minutes.
	TotalTimeout time.Duration
	// Connections is how many idle connections are kept: as many as calls run at once. Default: 64.
	Connections int
	// AllowHTTP permits an http endpoint with an API key on other than a loopback address, for an emulator inside a cluster.
	// Default: false.
	AllowHTTP bool
}

// Client calls one deployment. It is safe for concurrent use.
type Client struct {
	deployment Deployment
	endpoint   endpoint
	total      time.Duration
	transport  http.RoundTripper
	own        *http.Transport // transport, if it is not the caller's
	token      *credential     // nil with an API key
	chat       openai.ChatCompletionService
}

// New returns a client for d. It makes no call. The error says what in d cannot be used.
func New(d Deployment, opts *Options) (*Client, error) {
	o := opts.withDefaults()
	if d.Name == "" {
		return nil, errors.New("model: deployment has no name")
	}
	if (d.Key == nil) == (d.Credential == nil) {
		return nil, fmt.Errorf("model: deployment %q needs either an API key or a credential", d.Name)
	}
	if d.APIVersion == "" {
		d.APIVersion = "v1"
	}
	if err := checkVersion(d.APIVersion); err != nil {
		return nil, fmt.Errorf("model: deployment %q: %w", d.Name, err)
	}
	e, err := parseEndpoint(d, o.AllowHTTP)
	if err != nil {
		return nil, fmt.Errorf("model: deployment %q: %w", d.Name, err)
	}
	c := &Client{deployment: d, endpoint: e, total: o.TotalTimeout, transport: o.Transport}
	if c.transport == nil {
		c.own = newTransport(o)
		c.transport = c.own
	}
	options := []option.RequestOption{
		option.WithMiddleware(route(d)), // before the SDK's own routing
		azure.WithEndpoint(e.sdk, d.APIVersion),
		option.WithMaxRetries(0),
	}
	if d.Credential != nil {
		c.token = newCredential(d.Credential)
		options = append(options, azure.WithTokenCredential(c.token))
	}
	c.chat = openai.NewChatCompletionService(options...)
	return c, nil
}

// Close closes idle connections of the client's own transport. Calls that run are not disturbed.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Complete asks for one completion, with exactly one HTTP request. The error is an [*Error].
func (c *Client) Complete(ctx context.Context, r Request) (*Answer, error) {
	if name := r.invalid(); name != "" {
		return nil, c.refuse(name, r.callerParams())
	}
	body, err := r.encode(c.deployment.Name)
	if err != nil {
		return nil, c.fail(Misconfigured, "invalid_request", false, err)
	}
	options := []option.RequestOption{option.WithRequestBody("application/json", body)}
	if c.deployment.Key != nil {
		key, err := c.deployment.Key()
		if err = checkKey(key, err); err != nil {
			return nil, c.fail(Misconfigured, "credential", false, err)
		}
		options = append(options, azure.WithAPIKey(strings.TrimSpace(key)))
	}

	call, cancel := context.WithTimeout(ctx, c.total)
	defer cancel()
	x := &exchange{transport: c.transport, plain: c.endpoint.plain, sent: r.Sent}
	defer x.end()
	var unread *http.Response // the exchange has the body, and the filter verdicts in it are not in the SDK's types
	options = append(options,
		option.WithHTTPClient(&http.Client{Transport: x, CheckRedirect: refuseRedirect}),
		option.WithResponseBodyInto(&unread))
	_, err = c.chat.New(call, openai.ChatCompletionNewParams{}, options...)

	if response, ok := x.result(); ok {
		response.Host, response.Deployment = c.endpoint.host, c.deployment.Name
		response.Now = time.Now()
		response.Estimate, response.TokenLimit = r.Estimate(), c.deployment.TPM
		response.CallerParams = r.callerParams()
		answer, failed := Classify(response)
		if failed != nil {
			if failed.Status == http.StatusUnauthorized && c.token != nil {
				c.token.expire()
			}
			return nil, failed
		}
		return answer, nil
	}
	if ctx.Err() != nil {
		return nil, c.fail(Interrupted, interruption(ctx), x.reached(), errors.Join(ctx.Err(), context.Cause(ctx)))
	}
	if call.Err() != nil {
		return nil, c.fail(Unavailable, "timeout", x.reached(), call.Err())
	}
	return nil, c.transportError(err, x.reached())
}

// refuse is the error for a request that is not worth sending.
func (c *Client) refuse(param string, caller []string) *Error {
	kind := Misconfigured
	if param == "messages" || slices.Contains(caller, param) {
		kind = RequestParameter
	}
	e := c.fail(kind, "invalid_request", false, nil)
	e.Param = param
	return e
}

// fail is an error for which there is no response.
func (c *Client) fail(kind ErrorKind, code string, sent bool, err error) *Error {
	return &Error{
		Kind: kind, Host: c.endpoint.host, Deployment: c.deployment.Name, Code: code, Sent: sent, Limits: rateLimits(nil), Err: err,
	}
}

func interruption(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "deadline"
	}
	return "cancelled"
}

func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.ConnectTimeout <= 0 {
		d.ConnectTimeout = 10 * time.Second
	}
	if d.HeaderTimeout <= 0 {
		d.HeaderTimeout = 5 * time.Minute
	}
	if d.TotalTimeout <= 0 {
		d.TotalTimeout = 6 * time.Minute
	}
	if d.Connections <= 0 {
		d.Connections = 64
	}
	return d
}

// newTransport returns a transport for one deployment.
//
// It speaks HTTP/1.1 only: with HTTP/2 all calls share one connection, so that losing it loses every answer being paid for, and
// every call goes to the same front end. The keep-alive probes matter: a reasoning model is silent for minutes, and Azure's load
// balancers forget a silent flow after four.
func newTransport(o Options) *http.Transport {
	dialer := &net.Dialer{
		Timeout:         o.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4},
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    o.ConnectTimeout,
		ResponseHeaderTimeout:  o.HeaderTimeout,
		Protocols:              protocols,
		MaxIdleConns:           o.Connections,
		MaxIdleConnsPerHost:    o.Connections,
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// endpoint is a parsed Deployment.Endpoint.
type endpoint struct {
	// sdk is the base URL for the SDK. It is always https: for http the SDK would replace the transport by one of its own, with
	// other timeouts, and refuse what AllowHTTP permits. The exchange restores the scheme.
	sdk   string
	plain bool
	host  string
	path  string
}

func parseEndpoint(d Deployment, allowHTTP bool) (endpoint, error) {
	u, err := url.Parse(d.Endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, errors.New("endpoint is not a plain https URL")
	}
	e := endpoint{host: u.Host, path: strings.TrimRight(u.Path, "/")}
	if d.APIVersion == "v1" {
		// The portal shows the endpoint with this path.
		e.path = strings.TrimSuffix(e.path, "/openai/v1")
	}
	if strings.Contains(e.path, "/openai/") {
		return endpoint{}, errors.New("endpoint contains the path of the API: give the resource's base URL")
	}
	switch u.Scheme {
	case "https":
	case "http":
		e.plain = true
		loopback := isLoopback(u.Hostname())
		if !loopback && !allowHTTP {
			return endpoint{}, errors.New("endpoint is http and not on this machine")
		}
		if !loopback && d.Credential != nil {
			return endpoint{}, errors.New("endpoint is http: a token is never sent in the clear to another machine")
		}
	default:
		return endpoint{}, errors.New("endpoint is not a plain https URL")
	}
	e.sdk = (&url.URL{Scheme: "https", Host: u.Host, Path: e.path}).String()
	return e, nil
}

// route returns SDK middleware that gives a request the path of its call: that of the undated v1 API, which takes the
// deployment from the body and no api-version, or one with the deployment in it. It does so before the middleware of
// azure.WithEndpoint, which knows the dated path only and decodes every body again to find the deployment; for a path that it
// does not know, that one only puts /openai in front.
func route(d Deployment) option.Middleware {
	const chat = "/chat/completions"
	call := "/deployments/" + url.PathEscape(d.Name) + chat
	if d.APIVersion == "v1" {
		call = "/v1" + chat
	}
	return func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		u := *r.URL
		u.RawPath = strings.TrimSuffix(r.URL.EscapedPath(), chat) + call
		var err error
		if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
			return nil, err
		}
		if d.APIVersion == "v1" {
			u.RawQuery = ""
		}
		r.URL = &u
		return next(r)
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func checkVersion(version string) error {
	if version == "v1" {
		return nil
	}
	_, err := time.Parse(time.DateOnly, strings.TrimSuffix(version, "-preview"))
	switch {
	case err != nil:
		return fmt.Errorf("api version %q is neither v1 nor a date", version)
	case version < "2024-09-01":
		return fmt.Errorf("api version %s does not know max_completion_tokens: use v1 or 2024-10-21", version)
	}
	return nil
}
