package catalog

import (
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// containerName is the rule of Blob Storage ("Naming and referencing containers, blobs, and metadata") without its minimum of three
// characters, which emulators do not have; two hyphens in a row are refused separately.
var containerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// endpoint returns the URL of a model resource without a trailing slash.
func (r *reader) endpoint(n node) (string, bool) {
	u, ok := r.url(n)
	if !ok {
		return "", false
	}
	path := strings.TrimRight(u.Path, "/")
	if strings.HasSuffix(path, "/openai") || strings.Contains(path, "/openai/") {
		r.report(n, "must be the resource alone, such as https://name.openai.azure.com: the path behind it follows from api_version")
		return "", false
	}
	return u.Scheme + "://" + strings.ToLower(u.Host) + path, true
}

// container returns the URL of a container without a trailing slash.
func (r *reader) container(n node) (string, bool) {
	u, ok := r.url(n)
	if !ok {
		return "", false
	}
	path := strings.TrimSuffix(u.Path, "/")
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	name := segments[len(segments)-1]
	// Emulators have the account's name in the path.
	if len(segments) != 1 && !(len(segments) == 2 && isLoopback(u)) {
		r.report(n, "must be the URL of a container, such as https://account.blob.core.windows.net/in, and nothing below it")
		return "", false
	}
	if !containerName.MatchString(name) || strings.Contains(name, "--") {
		r.report(n, "must end in the name of a container: at most 63 of a-z, 0-9 and single hyphens")
		return "", false
	}
	return u.Scheme + "://" + strings.ToLower(u.Host) + path, true
}

// url returns a URL that holds nothing but scheme, host and path. What else was written there may be a secret, so it is not repeated.
func (r *reader) url(n node) (*url.URL, bool) {
	raw, ok := r.word(n)
	if !ok {
		return nil, false
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "" || strings.Contains(raw, `\`):
		r.report(n, "must be a URL such as https://name.example")
		return nil, false
	case u.User != nil:
		r.report(n, "must not hold a user name or password: remove it, and replace the secret that was written here")
		return nil, false
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		r.report(n, "must not have anything from ? or # on: access comes from an identity, never from a signature in a URL")
		return nil, false
	case strings.Contains(u.EscapedPath(), "%") || strings.Contains(u.Path, "//") || strings.Contains(u.Path+"/", "/./") || strings.Contains(u.Path+"/", "/../"):
		r.report(n, "must have a plain path, without escapes, empty or dotted segments")
		return nil, false
	case u.Scheme == "https":
		return u, true
	case u.Scheme == "http" && isLoopback(u) && r.policy.AllowLoopbackHTTP:
		return u, true
	case u.Scheme == "http" && isLoopback(u):
		r.report(n, "is http: use https, or set policy.allow_loopback_http for an emulator on this machine")
		return nil, false
	}
	r.report(n, "must begin with https://")
	return nil, false
}

func isLoopback(u *url.URL) bool {
	if strings.EqualFold(u.Hostname(), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.Unmap().IsLoopback()
}
