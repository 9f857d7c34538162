package blobtest

import (
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxPage is the most that one answer lists ("List Blobs").
const maxPage = 5000

// page is one stretch of a listing.
type page struct {
	prefix string
	after  string // marker: the first name to list
	marker string // as sent
	limit  int
	given  bool // the client set maxresults
}

func pageOf(query url.Values) (page, *failure) {
	p := page{prefix: query.Get("prefix"), marker: query.Get("marker"), limit: maxPage}
	if v := query.Get("maxresults"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return p, failed("InvalidQueryParameterValue")
		}
		if n < 1 {
			return p, failed("OutOfRangeQueryParameterValue")
		}
		p.limit, p.given = min(n, maxPage), true
	}
	if p.marker != "" {
		name, ok := decodeMarker(p.marker)
		if !ok {
			return p, failed("OutOfRangeInput")
		}
		p.after = name
	}
	return p, nil
}

// Markers are opaque to clients; ours carry the next name.
func encodeMarker(name string) string {
	return "2!" + base64.RawURLEncoding.EncodeToString([]byte(name))
}

func decodeMarker(marker string) (string, bool) {
	code, ok := strings.CutPrefix(marker, "2!")
	name, err := base64.RawURLEncoding.DecodeString(code)
	return string(name), ok && err == nil
}

// head writes the opening of a listing with the parameters it repeats.
func (p page) head(out *strings.Builder, r target, attribute string) {
	out.WriteString(xmlHeader + "<EnumerationResults ServiceEndpoint=\"")
	endpoint := "/"
	if !r.hostStyle {
		endpoint += r.account + "/"
	}
	text(out, endpoint)
	out.WriteString("\"" + attribute + ">")
	for _, e := range []struct{ name, value string }{{"Prefix", p.prefix}, {"Marker", p.marker}} {
		if e.value != "" {
			element(out, e.name, e.value)
		}
	}
	if p.given {
		element(out, "MaxResults", strconv.Itoa(p.limit))
	}
}

func element(out *strings.Builder, name, value string) {
	out.WriteString("<" + name + ">")
	text(out, value)
	out.WriteString("</" + name + ">")
}

func (s *Server) listContainers(t target) (*response, *failure) {
	p, f := pageOf(t.query)
	if f != nil {
		return nil, f
	}
	withMetadata := includes(t.query, "metadata")
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for key := range s.boxes {
		if key.account == t.account && strings.HasPrefix(key.container, p.prefix) && key.container >= p.after {
			names = append(names, key.container)
		}
	}
	slices.Sort(names)
	var out strings.Builder
	p.head(&out, t, "")
	out.WriteString("<Containers>")
	next := ""
	for i, name := range names {
		if i == p.limit {
			next = encodeMarker(name)
			break
		}
		b := s.box(t.account, name)
		out.WriteString("<Container>")
		element(&out, "Name", name)
		out.WriteString("<Properties>")
		element(&out, "Last-Modified", b.modified.Format(http.TimeFormat))
		element(&out, "Etag", b.etag)
		out.WriteString("<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>" +
			"<HasImmutabilityPolicy>false</HasImmutabilityPolicy><HasLegalHold>false</HasLegalHold></Properties>")
		if withMetadata {
			writeMetadata(&out, b.metadata)
		}
		out.WriteString("</Container>")
	}
	out.WriteString("</Containers>")
	return p.finish(&out, next), nil
}

func (p page) finish(out *strings.Builder, next string) *response {
	element(out, "NextMarker", next)
	out.WriteString("</EnumerationResults>")
	resp := newResponse(http.StatusOK)
	resp.xml(out.String())
	return resp
}

func (s *Server) listBlobs(t target) (*response, *failure) {
	p, f := pageOf(t.query)
	if f != nil {
		return nil, f
	}
	if includes(t.query, "uncommittedblobs") {
		return nil, failed("NotImplemented")
	}
	p.after = max(p.after, t.query.Get("startFrom"))
	delimiter := t.query.Get("delimiter")
	withMetadata := includes(t.query, "metadata")

	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.box(t.account, t.container)
	if in == nil {
		return nil, failed("ContainerNotFound")
	}
	var out strings.Builder
	p.head(&out, t, " ContainerName=\""+t.container+"\"") // a valid name needs no escape
	if delimiter != "" {
		element(&out, "Delimiter", delimiter)
	}
	out.WriteString("<Blobs>")
	next, listed, group := "", 0, ""
	for _, name := range in.names(p.prefix) {
		if name < p.after || (group != "" && strings.HasPrefix(name, group)) {
			continue
		}
		if listed == p.limit {
			next = encodeMarker(name)
			break
		}
		listed++
		if group = groupOf(name, p.prefix, delimiter); group != "" {
			out.WriteString("<BlobPrefix>")
			writeName(&out, group)
			out.WriteString("</BlobPrefix>")
			continue
		}
		in.blobs[name].list(&out, withMetadata)
	}
	out.WriteString("</Blobs>")
	return p.finish(&out, next), nil
}

// groupOf is the prefix that stands for a name in a listing by delimiter; "" if the name stands for itself.
func groupOf(name, prefix, delimiter string) string {
	if delimiter == "" {
		return ""
	}
	i := strings.Index(name[len(prefix):], delimiter)
	if i < 0 {
		return ""
	}
	return name[:len(prefix)+i+len(delimiter)]
}

// includes reports whether the include parameter names a data set. Those that do not exist here (snapshots, versions,
// tags, deleted, copy) are empty and need no mention.
func includes(query url.Values, set string) bool {
	return slices.Contains(strings.Split(query.Get("include"), ","), set)
}

func (b *blob) list(out *strings.Builder, withMetadata bool) {
	out.WriteString("<Blob>")
	writeName(out, b.name)
	out.WriteString("<Properties>")
	element(out, "Creation-Time", b.created.Format(http.TimeFormat))
	element(out, "Last-Modified", b.modified.Format(http.TimeFormat))
	element(out, "Etag", strings.Trim(b.etag, `"`)) // listings carry it without quotes
	element(out, "Content-Length", strconv.FormatInt(b.content.size, 10))
	element(out, "Content-Type", b.properties.ContentType)
	element(out, "Content-Encoding", b.properties.ContentEncoding)
	element(out, "Content-Language", b.properties.ContentLanguage)
	element(out, "Content-MD5", b.properties.ContentMD5)
	element(out, "Cache-Control", b.properties.CacheControl)
	element(out, "Content-Disposition", b.properties.ContentDisposition)
	element(out, "BlobType", "BlockBlob")
	if b.tier == "" {
		out.WriteString("<AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred>")
	} else {
		element(out, "AccessTier", b.tier)
	}
	out.WriteString("<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>" +
		"<ServerEncrypted>true</ServerEncrypted></Properties>")
	if withMetadata {
		writeMetadata(out, b.metadata)
	}
	out.WriteString("<OrMetadata /></Blob>")
}

// writeName percent-encodes a name that XML 1.0 cannot hold and says so, as the service does since 2021-02-12.
func writeName(out *strings.Builder, name string) {
	for _, r := range name {
		if !inXML(r) {
			out.WriteString("<Name Encoded=\"true\">" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20") + "</Name>")
			return
		}
	}
	element(out, "Name", name)
}

// inXML is Char of XML 1.0, 2.2.
func inXML(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD ||
		r >= 0x10000 && r <= utf8.MaxRune
}

func writeMetadata(out *strings.Builder, metadata map[string]string) {
	out.WriteString("<Metadata>")
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		element(out, name, metadata[name])
	}
	out.WriteString("</Metadata>")
}
