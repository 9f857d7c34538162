package claimcheck

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The limits of names, from "Naming and Referencing Containers, Blobs, and Metadata" in the Blob service documentation.
const (
	maxBlobName     = 1024 // characters, counted as UTF-16 code units
	maxPathSegments = 254
)

// Reference is a parsed blob URL in canonical form: two URLs of one blob give equal References. It holds no secret.
type Reference struct {
	// Account is the account's endpoint without a trailing slash: scheme and host in lower case, no default port, and for
	// hosts that are an IP address or localhost the account as first path segment (http://127.0.0.1:10000/devstoreaccount1).
	Account string
	// Container is the container's name.
	Container string
	// Blob is the blob's name, decoded. It is the byte string that the caller wrote: no Unicode normalisation.
	Blob string
	// VersionID and Snapshot pin a version of the blob. At most one of them is set.
	VersionID string
	Snapshot  string
}

// ParseReference reads the URL of a blob. What it accepts is narrow, because a worker follows it with an identity of its
// own:
//
//   - https, or http to this machine (Policy decides whether that is allowed);
//   - no user information, no fragment, no query other than versionid or snapshot. A shared access signature is refused;
//   - a container of the ordinary kind ($root, $logs and $web are refused) and a blob name without empty, "." or ".."
//     segments, segments ending in a dot, backslashes or control characters. Percent-encoding is undone once, and names
//     that would break these rules when undone again are refused as well.
//
// The error is a *PoisonError with ReasonForbiddenReference or ReasonInvalidName. It never shows the URL.
func ParseReference(raw string) (Reference, error) {
	ref, err := parseReference(raw)
	if err != nil {
		return Reference{}, err
	}
	return ref, nil
}

// ContainerURL returns the canonical URL of the reference's container.
func (r Reference) ContainerURL() string {
	return r.Account + "/" + r.Container
}

// String returns the canonical URL: in the blob's name A-Z, a-z, 0-9, "-", ".", "_", "~" and "/" stand for themselves and
// every other byte of the UTF-8 name is written as %XX with upper-case digits.
func (r Reference) String() string {
	var b strings.Builder
	b.WriteString(r.Account)
	b.WriteByte('/')
	b.WriteString(r.Container)
	b.WriteByte('/')
	const hex = "0123456789ABCDEF"
	for i := range len(r.Blob) {
		c := r.Blob[i]
		if isUnreserved(c) || c == '/' {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	if r.VersionID != "" {
		b.WriteString("?versionid=" + r.VersionID)
	}
	if r.Snapshot != "" {
		b.WriteString("?snapshot=" + r.Snapshot)
	}
	return b.String()
}

// pinned reports whether r names a version of the blob.
func (r Reference) pinned() bool {
	return r.VersionID != "" || r.Snapshot != ""
}

// AccountName returns the storage account's name: the first label of the host, or the path segment of an emulator.
func (r Reference) AccountName() string {
	_, rest, _ := strings.Cut(r.Account, "://")
	host, path, hasPath := strings.Cut(rest, "/")
	if hasPath {
		return path
	}
	name, _, _ := strings.Cut(host, ".")
	return name
}

func parseReference(raw string) (Reference, *PoisonError) {
	if err := checkCharacters(raw); err != nil {
		return Reference{}, err
	}
	location, query, hasQuery := strings.Cut(raw, "?")
	account, path, err := parseAccount(location)
	if err != nil {
		return Reference{}, err
	}
	ref := Reference{Account: account}
	if hasQuery {
		if err := ref.parseQuery(query); err != nil {
			return Reference{}, err
		}
	}
	containerName, name, ok := strings.Cut(path, "/")
	if !ok || name == "" {
		return Reference{}, invalidName("the URL needs a container and a blob name in it")
	}
	if !isContainer(containerName) {
		return Reference{}, invalidName("the container name is not one: at most 63 lower-case letters, digits and single hyphens")
	}
	ref.Container = containerName
	ref.Blob, err = decodeName(name)
	if err != nil {
		return Reference{}, err
	}
	return ref, nil
}

// parseContainer reads a container URL of the configuration and returns it in canonical form.
func parseContainer(raw string) (Reference, *PoisonError) {
	if err := checkCharacters(raw); err != nil {
		return Reference{}, err
	}
	if strings.Contains(raw, "?") {
		return Reference{}, forbidden("a container URL has no query")
	}
	account, path, err := parseAccount(raw)
	if err != nil {
		return Reference{}, err
	}
	path = strings.TrimSuffix(path, "/")
	if !isContainer(path) {
		return Reference{}, invalidName("the URL must end in a container name: at most 63 lower-case letters, digits and single hyphens")
	}
	return Reference{Account: account, Container: path}, nil
}

// checkCharacters allows only what RFC 3986 allows in a URL, so that no parser further on has anything to guess.
func checkCharacters(raw string) *PoisonError {
	for i := range len(raw) {
		c := raw[i]
		switch {
		case c == '\\':
			return invalidName("the URL has a backslash: use / between folders")
		case c == '#':
			return forbidden("the URL has a fragment: write a # of the name as %%23")
		case isUnreserved(c), strings.IndexByte("%:/?@!$&'()*+,;=[]", c) >= 0:
		default:
			return invalidName("percent-encode spaces, quotes and characters outside ASCII, as the SDK's blob client URL does")
		}
	}
	return nil
}

// parseAccount splits off scheme, host and, for hosts that are addresses, the account segment.
func parseAccount(location string) (account, path string, err *PoisonError) {
	scheme, rest, ok := strings.Cut(location, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "https" && scheme != "http" {
		return "", "", forbidden("use the blob's full https URL")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(authority, "@") {
		return "", "", forbidden("the URL has user information in front of the host: remove it")
	}
	authority, ok = canonicalAuthority(scheme, authority)
	if !ok {
		return "", "", forbidden("the host of the URL is not one")
	}
	host := hostOf(authority)
	if scheme == "http" && !isLoopback(host) {
		return "", "", forbidden("use https")
	}
	account = scheme + "://" + authority
	if _, addrErr := netip.ParseAddr(host); addrErr != nil && host != "localhost" {
		return account, path, nil
	}
	name, path, _ := strings.Cut(path, "/")
	if !isAccount(name) {
		return "", "", invalidName("the first path segment at this host must be the account: 3 to 24 lower-case letters and digits")
	}
	return account + "/" + name, path, nil
}

// canonicalAuthority lowers the host and drops the scheme's default port. A host that ends in a number must be an IPv4
// address in its usual form, since some resolvers read 127.1 or 2130706433 as one.
func canonicalAuthority(scheme, authority string) (string, bool) {
	host, port, bracketed := strings.ToLower(authority), "", false
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return "", false
		}
		addr, err := netip.ParseAddr(host[1:end])
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", false
		}
		bracketed = true
		rest := host[end+1:]
		host = "[" + addr.String() + "]"
		if rest != "" {
			if rest[0] != ':' || len(rest) == 1 {
				return "", false
			}
			port = rest[1:]
		}
	} else if name, p, ok := strings.Cut(host, ":"); ok {
		if p == "" {
			return "", false
		}
		host, port = name, p
	}
	if !bracketed && !isHost(host) {
		return "", false
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' {
			return "", false
		}
		if scheme == "https" && n == 443 || scheme == "http" && n == 80 {
			return host, true
		}
		return host + ":" + port, true
	}
	return host, true
}

func isHost(host string) bool {
	if len(host) == 0 || len(host) > 253 {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || !only(label, "-", false) {
			return false
		}
	}
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' {
		addr, err := netip.ParseAddr(host)
		return err == nil && addr.Is4()
	}
	return true
}

// hostOf takes the port and the brackets of a canonical authority away.
func hostOf(authority string) string {
	if strings.HasPrefix(authority, "[") {
		return authority[1:strings.IndexByte(authority, ']')]
	}
	host, _, _ := strings.Cut(authority, ":")
	return host
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// parseQuery accepts one versionid or one snapshot. The portal writes versionId, the REST documentation versionid.
func (r *Reference) parseQuery(query string) *PoisonError {
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		key = strings.ToLower(key)
		if isSignatureKey(key) {
			return forbidden("the URL carries a shared access signature: remove it, the worker reads with an identity of its own")
		}
		if key != "versionid" && key != "snapshot" {
			return forbidden("the URL has a query: only versionid and snapshot are allowed")
		}
		value = strings.ReplaceAll(strings.ReplaceAll(value, "%3A", ":"), "%3a", ":")
		if !isVersionStamp(value) {
			return forbidden("versionid and snapshot are times such as 2026-12-01T12:00:00.1234567Z")
		}
		if r.VersionID != "" || r.Snapshot != "" {
			return forbidden("the URL pins more than one version: keep one")
		}
		if key == "versionid" {
			r.VersionID = value
		} else {
			r.Snapshot = value
		}
	}
	return nil
}

// isSignatureKey knows the parameters of "Create a service SAS", "account SAS" and "user delegation SAS".
func isSignatureKey(key string) bool {
	switch key {
	case "sig", "sv", "se", "st", "sp", "sr", "ss", "srt", "spr", "sip", "si", "skoid", "sktid", "skt", "ske", "sks", "skv",
		"saoid", "suoid", "scid", "sdd", "ses", "sduoid", "skdutid", "rscc", "rscd", "rsce", "rscl", "rsct":
		return true
	}
	return false
}

// isVersionStamp accepts the service's opaque times: 2026-12-01T12:00:00.1234567Z.
func isVersionStamp(value string) bool {
	rest, ok := matchShape(value, "dddd-dd-ddTdd:dd:dd.ddddddd")
	return ok && rest == "Z"
}

// decodeName undoes percent-encoding once and refuses names that are dangerous now or would be after more rounds: some
// proxies and gateways decode again.
func decodeName(encoded string) (string, *PoisonError) {
	name, ok := percentDecode(encoded)
	if !ok {
		return "", invalidName("a %% in the URL must be followed by two hexadecimal digits; write %% itself as %%25")
	}
	if err := checkName(name); err != nil {
		return "", err
	}
	for again := name; strings.Contains(again, "%"); {
		// What is no valid encoding stays as it is; the rest of the name may still be one.
		next := percentDecodeLoose(again)
		if next == again {
			break
		}
		again = next
		if err := checkSegments(again); err != nil {
			return "", invalidName("the blob name is encoded twice: decoded again it would leave its folder")
		}
	}
	return name, nil
}

// checkName applies the service's rules for blob names, and none of the latitude that the service warns against.
func checkName(name string) *PoisonError {
	if !utf8.ValidString(name) {
		return invalidName("the blob name is not UTF-8")
	}
	units := 0
	for _, r := range name {
		units += utf16.RuneLen(r)
	}
	if units > maxBlobName {
		return invalidName("the blob name is longer than %d characters", maxBlobName)
	}
	if strings.Count(name, "/") >= maxPathSegments {
		return invalidName("the blob name has more than %d segments", maxPathSegments)
	}
	return checkSegments(name)
}

func checkSegments(name string) *PoisonError {
	if strings.ContainsFunc(name, isControl) {
		return invalidName("the blob name has control characters")
	}
	if strings.Contains(name, `\`) {
		return invalidName("the blob name has a backslash, which the service takes for a slash")
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" {
			return invalidName("the blob name has an empty segment: one slash between segments, none at the end")
		}
		if strings.HasSuffix(segment, ".") {
			return invalidName("a segment of the blob name is . or .. or ends in a dot")
		}
	}
	return nil
}

func percentDecode(s string) (string, bool) {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
			return "", false
		}
		b.WriteByte(unhex(s[i+1])<<4 | unhex(s[i+2]))
		i += 2
	}
	return b.String(), true
}

func percentDecodeLoose(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			b.WriteByte(unhex(s[i+1])<<4 | unhex(s[i+2]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	}
	return c - 'A' + 10
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

func isAccount(s string) bool {
	return len(s) >= 3 && len(s) <= 24 && only(s, "", false)
}

// isContainer leaves the service's minimum of three characters to the service: emulators allow less, and a name that is
// too short points nowhere.
func isContainer(s string) bool {
	return len(s) <= 63 && startsWell(s) && only(s, "-", false) && !strings.HasSuffix(s, "-") && !strings.Contains(s, "--")
}

func forbidden(format string, args ...any) *PoisonError {
	return poison(ReasonForbiddenReference, "blob", format, args...)
}

func invalidName(format string, args ...any) *PoisonError {
	return poison(ReasonInvalidName, "blob", format, args...)
}
