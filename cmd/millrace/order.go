package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"millrace/claimcheck"
)

// longestLine bounds a line of a JSON lines file in bytes. A claim has at most 4,096, and escaping makes it longer.
const longestLine = 64 << 10

// order is a claim before it is sent.
type order struct {
	label string           // what people call it
	claim claimcheck.Claim // without an ETag if there is something to do first
	file  *document        // to be uploaded; nil if the blob is there
	ref   claimcheck.Reference
	pin   bool // look up the ETag of a blob that is there
}

// orderBook collects orders and everything that is wrong with them, before anything is sent.
type orderBook struct {
	client   *client
	place    func(tenant string) (claimcheck.Reference, error)
	defaults claimcheck.Claim // what a line or a file does not say
	prefix   string           // of correlation ids

	orders   []order
	renamed  []renaming
	left     []leftOut
	problems []error
	taken    map[string]string // blob URL → label
}

// addPaths orders the files named, and those below the folders named.
func (b *orderBook) addPaths(paths []string) {
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			b.problem("%s: cannot be read: %s", shown(p), reason(err))
			continue
		}
		if !info.IsDir() {
			b.addFile(p, claimcheck.Claim{})
			continue
		}
		f, err := readFolder(p, b.defaults.Tenant, b.defaults.Model, nil)
		if err != nil {
			b.problem("%s: %s", shown(p), err)
			continue
		}
		if len(f.documents)+len(f.left) == 0 {
			b.problem("%s: there is no file in this folder", shown(p))
		}
		b.left = append(b.left, f.left...)
		for _, d := range f.documents {
			if d.size > b.client.largest() {
				b.left = append(b.left, leftOut{d.name, fmt.Sprintf("has %d bytes, more than the %d that a document may have", d.size, b.client.largest())})
				continue
			}
			b.addDocument(d, d.name, claimcheck.Claim{})
		}
	}
}

// addFile orders one file that somebody named. claim holds what is not the default.
func (b *orderBook) addFile(path string, claim claimcheck.Claim) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() {
		var f *os.File
		if f, err = os.Open(path); err == nil { // whether it can be read is known before anything is sent
			f.Close()
		}
	}
	switch {
	case err != nil:
		b.problem("%s: cannot be read: %s", shown(path), reason(err))
		return
	case info.IsDir():
		b.problem("%s: is a folder; name a file", shown(path))
		return
	case !info.Mode().IsRegular():
		b.problem("%s: is no regular file", shown(path))
		return
	case info.Size() > b.client.largest():
		b.problem("%s: has %d bytes, more than the %d that a document may have", shown(path), info.Size(), b.client.largest())
		return
	}
	b.addDocument(document{
		name: filepath.Base(path), sniff: true, read: func() ([]byte, error) { return os.ReadFile(path) },
	}, path, claim)
}

// largest is how many bytes a document may have.
func (c *client) largest() int64 {
	if c.catalog != nil {
		return min(c.catalog.Policy.MaxDocumentBytes, maxFile)
	}
	return maxFile
}

// addDocument orders the upload of d and the work on it.
func (b *orderBook) addDocument(d document, label string, claim claimcheck.Claim) {
	b.fill(&claim)
	d.tenant, d.model = claim.Tenant, claim.Model
	if claim.CorrelationID == "" {
		claim.CorrelationID = b.prefix + correlationID(d.name)
	}
	if !b.addressed(claim, label) {
		return
	}
	at, err := b.place(claim.Tenant)
	if err != nil {
		b.problem("%s", err)
		return
	}
	ref, renamed := d.reference(at.Account, at.Container)
	if first, twice := b.taken[ref.String()]; twice {
		b.problem("%s and %s would be one blob, %s; submit them from one folder above both, or rename one", shown(first), shown(label), ref.Blob)
		return
	}
	b.taken[ref.String()] = label
	if renamed {
		b.renamed = append(b.renamed, renaming{d.name, ref.Blob})
	}
	claim.Blob = ref.String()
	b.add(order{label: label, claim: claim, file: &d, ref: ref})
}

// fill puts the defaults where claim says nothing.
func (b *orderBook) fill(claim *claimcheck.Claim) {
	for _, f := range []struct {
		field *string
		value string
	}{{&claim.Tenant, b.defaults.Tenant}, {&claim.Model, b.defaults.Model}, {&claim.Run, b.defaults.Run}} {
		if *f.field == "" {
			*f.field = f.value
		}
	}
}

// addressed checks whose work it is and what for, since where a file goes follows from that.
func (b *orderBook) addressed(claim claimcheck.Claim, label string) bool {
	switch {
	case claim.Tenant == "":
		b.problem("%s: has no tenant; name it with --tenant", shown(label))
	case claim.Model == "":
		b.problem("%s: has no model; name its alias with --model", shown(label))
	default:
		err := errors.Join(b.client.checkTenant(claim.Tenant), b.client.checkModel(claim.Model))
		if err == nil {
			return true
		}
		b.problem("%s: %s", shown(label), strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return false
}

// add takes an order whose claim could be sent but for its ETag.
func (b *orderBook) add(o order) {
	if _, err := o.claim.Encode(); err != nil {
		b.problem("%s: %s", shown(o.label), detail(err))
		return
	}
	if policy := b.client.policy(); policy != nil {
		if _, err := policy.Check(o.claim); err != nil {
			b.problem("%s: %s", shown(o.label), detail(err))
			return
		}
	}
	b.orders = append(b.orders, o)
}

// problem notes a mistake; the same one is told once.
func (b *orderBook) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, p := range b.problems[max(0, len(b.problems)-mostLines):] {
		if p.Error() == text {
			return
		}
	}
	b.problems = append(b.problems, errors.New(text))
}

// err is every problem, one line for each up to a bound.
func (b *orderBook) err() error {
	switch len(b.problems) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("nothing was sent: %w", b.problems[0])
	}
	told := b.problems[:min(len(b.problems), mostLines):min(len(b.problems), mostLines)]
	if more := len(b.problems) - len(told); more > 0 {
		told = append(told, fmt.Errorf("… and %d more", more))
	}
	return fmt.Errorf("nothing was sent:\n%w", errors.Join(told...))
}

// lineOrder is a line that is no claim yet.
type lineOrder struct {
	File          string            `json:"file"`
	Blob          string            `json:"blob"`
	Tenant        string            `json:"tenant"`
	Model         string            `json:"model"`
	CorrelationID string            `json:"correlation_id"`
	ETag          string            `json:"etag"`
	Run           string            `json:"run"`
	Deadline      time.Time         `json:"deadline"`
	Attributes    map[string]string `json:"attributes"`
}

// addLines orders what the lines of r say. name is what people call r.
func (b *orderBook) addLines(r io.Reader, name string) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 4096), longestLine)
	n, found := 0, 0
	for lines.Scan() {
		n++
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\uFEFF"))
		if line == "" {
			continue
		}
		found++
		b.addLine([]byte(line), fmt.Sprintf("%s line %d", name, n))
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		b.problem("%s line %d: is longer than %d bytes", name, n+1, longestLine)
	case err != nil:
		b.problem("%s: cannot be read: %s", name, reason(err))
	case found == 0:
		b.problem("%s: there is no line in it", name)
	}
}

func (b *orderBook) addLine(line []byte, label string) {
	var l lineOrder
	if isClaim(line) {
		claim, err := claimcheck.Decode(line)
		if err != nil {
			b.problem("%s: %s", label, detail(err))
			return
		}
		if b.addressed(claim, label) {
			b.add(order{label: label, claim: claim})
		}
		return
	}
	if err := json.Unmarshal(line, &l, json.RejectUnknownMembers(true)); err != nil {
		b.problem("%s: %s", label, lineAdvice(err))
		return
	}
	claim := claimcheck.Claim{
		Tenant: l.Tenant, Model: l.Model, Blob: l.Blob, CorrelationID: l.CorrelationID, ETag: l.ETag, Run: l.Run,
		Deadline: l.Deadline, Attributes: l.Attributes,
	}
	switch {
	case l.File == "" && l.Blob == "":
		b.problem("%s: name a file to upload or a blob that is there", label)
	case l.File != "" && (l.Blob != "" || l.ETag != ""):
		b.problem("%s: has a file and also a blob or an etag; a file gets its own", label)
	case l.File != "":
		before := len(b.problems)
		b.addFile(l.File, claim)
		for i, p := range b.problems[before:] {
			b.problems[before+i] = fmt.Errorf("%s: %w", label, p)
		}
	default:
		b.addBlob(claim, label)
	}
}

// addBlob orders work on a blob that is there.
func (b *orderBook) addBlob(claim claimcheck.Claim, label string) {
	b.fill(&claim)
	ref, err := claimcheck.ParseReference(claim.Blob)
	if err != nil {
		b.problem("%s: %s", label, detail(err))
		return
	}
	if claim.CorrelationID == "" {
		claim.CorrelationID = b.prefix + correlationID(strings.TrimPrefix(ref.Blob, claim.Tenant+"/"))
	}
	if b.addressed(claim, label) {
		pinned := claim.ETag != "" || ref.VersionID != "" || ref.Snapshot != ""
		b.add(order{label: label, claim: claim, ref: ref, pin: !pinned})
	}
}

// isClaim tells a whole claim, which has a version, from a line that is none yet.
func isClaim(line []byte) bool {
	var head struct {
		Version jsontext.Value `json:"version"`
	}
	return json.Unmarshal(line, &head) == nil && head.Version != nil
}

// lineAdvice says what is wrong with a line without quoting it.
func lineAdvice(err error) string {
	var semantic *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return fmt.Sprintf("%s: occurs twice", shown(syntax.JSONPointer.LastToken()))
	case errors.As(err, &syntax):
		return fmt.Sprintf("is not one JSON object (byte %d)", syntax.ByteOffset)
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return fmt.Sprintf("%s: is unknown; use file or blob, tenant, model, correlation_id, etag, run, deadline and attributes", shown(semantic.JSONPointer.LastToken()))
	case errors.As(err, &semantic) && semantic.JSONPointer == "/deadline":
		return "deadline: use RFC 3339, such as 2026-12-01T12:00:00Z"
	case errors.As(err, &semantic) && semantic.JSONPointer != "":
		return fmt.Sprintf("%s: has the wrong type", shown(strings.TrimPrefix(string(semantic.JSONPointer), "/")))
	}
	return "is not a JSON object"
}
