package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// tree reads a YAML document by hand rather than into structs, because a struct decoder stops at the first problem and knows no
// places. Every accessor reports what it dislikes and returns something harmless, so that one reading finds everything.
type tree struct {
	file     string
	problems []*Problem
}

type place struct{ line, column int }

// node is a value and where it stands; a node without a value is absent or was reported.
type node struct {
	ast  ast.Node
	path string
	at   place
}

func (t *tree) report(n node, format string, args ...any) {
	t.problems = append(t.problems, &Problem{File: t.file, Line: n.at.line, Column: n.at.column, Path: n.path, Message: fmt.Sprintf(format, args...)})
}

// parse returns the document's root. A syntax error is a problem like any other, but the only one.
func (t *tree) parse(data []byte) node {
	tokens := lexer.Tokenize(string(data))
	if t.tooDeep(tokens) {
		return node{}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	var syntax yaml.Error
	if errors.As(err, &syntax) && syntax.GetToken() != nil && syntax.GetToken().Position != nil {
		p := syntax.GetToken().Position
		t.report(node{at: place{p.Line, p.Column}}, "not valid YAML: %s", oneLine(errors.New(syntax.GetMessage())))
		return node{}
	}
	if err != nil {
		t.report(node{}, "not valid YAML")
		return node{}
	}
	var docs []ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if doc.Body.Type() == ast.DirectiveType {
			t.report(node{at: placeOf(doc.Body)}, "YAML directives are not supported: remove the line")
			continue
		}
		docs = append(docs, doc.Body)
	}
	switch {
	case len(docs) == 0:
		t.report(node{}, "is empty: it needs version, tenants, deployments and aliases")
		return node{}
	case len(docs) > 1:
		t.report(node{at: placeOf(docs[1])}, "a second YAML document: a catalog is one document")
	}
	return node{ast: docs[0], at: placeOf(docs[0])}
}

// maxDepth is far above the depth of any catalog. The YAML library takes time and memory in the square of it.
const maxDepth = 32

func (t *tree) tooDeep(tokens token.Tokens) bool {
	depth := 0
	for _, tk := range tokens {
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		}
		if depth > maxDepth {
			t.report(node{at: place{tk.Position.Line, tk.Position.Column}}, "more than %d brackets inside each other", maxDepth)
			return true
		}
	}
	return false
}

// placeOf returns where a node begins. A mapping's own token is its first colon, so its first key stands for it.
func placeOf(n ast.Node) place {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return place{}
	}
	p := n.GetToken().Position
	return place{p.Line, p.Column}
}

// kind names what a node is, for people.
func kind(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode:
		return "a number"
	case *ast.InfinityNode, *ast.NanNode:
		return "not finite"
	case *ast.BoolNode:
		return "a boolean"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias, which a catalog may not have"
	case *ast.TagNode:
		return "a tag, which a catalog may not have"
	}
	return "something else"
}

// present is false for a node that is absent; a key with nothing behind it is reported.
func (t *tree) present(n node, want string) bool {
	if n.ast == nil {
		return false
	}
	if n.ast.Type() == ast.NullType {
		t.report(n, "has no value: write %s, or remove it", want)
		return false
	}
	return true
}

// members returns the entries of a mapping whose keys are names of the author's choice, in order.
func (t *tree) members(n node) []member {
	if !t.present(n, "a mapping") {
		return nil
	}
	var values []*ast.MappingValueNode
	switch m := n.ast.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		t.report(n, "must be a mapping, but is %s", kind(n.ast))
		return nil
	}
	var out []member
	seen := make(map[string]place, len(values))
	for _, v := range values {
		key := node{ast: v.Key, path: n.path, at: placeOf(v.Key)}
		name, ok := keyText(v.Key)
		if !ok {
			t.report(key, "a key must be a plain text")
			continue
		}
		path := pathOf(n.path, name)
		key.path = path
		if first, ok := seen[name]; ok {
			t.report(key, "is there twice, first in line %d", first.line)
			continue
		}
		seen[name] = key.at
		value := node{ast: v.Value, path: path, at: placeOf(v.Value)}
		if value.ast.Type() == ast.NullType {
			value.at = key.at // an absent value has no place of its own
		}
		out = append(out, member{name: name, key: key, value: value})
	}
	return out
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// pathOf keeps problems on one short line whatever a key is.
func pathOf(parent, name string) string {
	if !plainName.MatchString(name) {
		name = strconv.QuoteToASCII(string([]rune(name)[:min(64, len([]rune(name)))]))
	}
	if parent == "" {
		return name
	}
	return parent + "." + name
}

type member struct {
	name       string
	key, value node
}

func keyText(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return k.GetToken().Value, true
	}
	return "", false
}

// object is a mapping with known keys.
type object struct {
	tree   *tree
	self   node
	sound  bool // false: not a mapping, which was reported, so nothing is said of its keys
	fields map[string]node
}

// object reads a mapping whose keys are all known. required are those that must be there. at is where to report missing ones.
func (t *tree) object(n, at node, known, required []string) object {
	o := object{tree: t, self: n, fields: make(map[string]node)}
	if n.ast == nil {
		return o
	}
	before := len(t.problems)
	members := t.members(n)
	o.sound = len(members) > 0 || len(t.problems) == before
	for _, m := range members {
		switch {
		case slices.Contains(known, m.name):
			o.fields[m.name] = m.value
		case isSecretName(m.name):
			t.report(m.key, "a secret must not stand in the catalog: put it into a file or an environment variable, name that with api_key_file or api_key_env, and replace the secret that was written here")
		default:
			t.report(m.key, "is not known here: known are %s", strings.Join(known, ", "))
		}
	}
	if !o.sound {
		return o
	}
	for _, name := range required {
		if _, ok := o.fields[name]; !ok {
			t.report(at, "%s is missing", name)
		}
	}
	return o
}

// isSecretName recognises the keys under which people write secrets.
func isSecretName(name string) bool {
	switch strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name)) {
	case "apikey", "key", "secret", "clientsecret", "password", "token", "sas", "sastoken", "connectionstring", "accountkey", "accesskey", "sharedaccesskey", "credential", "credentials":
		return true
	}
	return false
}

// secretText matches values that carry a secret wherever they stand.
var secretText = regexp.MustCompile(`(?i)\b(sig|accountkey|sharedaccesskey|sharedaccesssignature)=`)

// text returns a string; it is false if there is none or if it was reported.
func (t *tree) text(n node) (string, bool) {
	if !t.present(n, "a text") {
		return "", false
	}
	var s string
	switch v := n.ast.(type) {
	case *ast.StringNode:
		s = v.Value
	case *ast.LiteralNode:
		s = v.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		t.report(n, "must be a text, but is %s: put it in quotes", kind(n.ast))
		return "", false
	default:
		t.report(n, "must be a text, but is %s", kind(n.ast))
		return "", false
	}
	switch {
	case secretText.MatchString(s):
		t.report(n, "holds a secret (a signature or a key): remove it, and replace the secret that was written here")
		return "", false
	case strings.ContainsFunc(s, func(r rune) bool { return r == 0 || r == '\uFFFD' }):
		t.report(n, "holds a character that is no text")
		return "", false
	}
	return s, true
}

// word is a text that is not empty, has no space around it, and is all on one line.
func (t *tree) word(n node) (string, bool) {
	s, ok := t.text(n)
	if !ok {
		return "", false
	}
	if s == "" || s != strings.TrimSpace(s) || strings.ContainsAny(s, "\n\r\t") {
		t.report(n, "must be a text of one line, not empty, without space around it")
		return "", false
	}
	return s, true
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9_]*)$`)

// integer returns a whole number between low and high.
func (t *tree) integer(n node, low, high int64) (int64, bool) {
	if !t.present(n, "a whole number") {
		return 0, false
	}
	written := n.ast.GetToken().Value
	_, isInteger := n.ast.(*ast.IntegerNode)
	// A number too large for 64 bits is read as a text by the YAML library.
	if !isInteger && kind(n.ast) != "a number" && !isUnquoted(n.ast, written) {
		t.report(n, "must be a whole number, but is %s", kind(n.ast))
		return 0, false
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(written, "_", ""), 10, 64)
	switch {
	case !decimal.MatchString(written):
		t.report(n, "must be a whole number in plain decimal digits")
		return 0, false
	case v < low: // out of range, ParseInt returns the nearest
		t.report(n, "is %s, but must be at least %d", written, low)
		return 0, false
	case err != nil || v > high:
		t.report(n, "is %s, but must be at most %d", written, high)
		return 0, false
	}
	return v, true
}

func isUnquoted(n ast.Node, written string) bool {
	_, ok := n.(*ast.StringNode)
	return ok && n.GetToken().Type.String() == "String" && decimal.MatchString(written)
}

// number returns a finite number between low and high.
func (t *tree) number(n node, low, high float64) (float64, bool) {
	if !t.present(n, "a number") {
		return 0, false
	}
	switch n.ast.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
	default:
		t.report(n, "must be a plain decimal number, but is %s", kind(n.ast))
		return 0, false
	}
	written := n.ast.GetToken().Value
	v, err := strconv.ParseFloat(strings.ReplaceAll(written, "_", ""), 64)
	if err != nil || !(v >= low && v <= high) {
		t.report(n, "is %s, but must be between %s and %s", written, strconv.FormatFloat(low, 'f', -1, 64), strconv.FormatFloat(high, 'f', -1, 64))
		return 0, false
	}
	return v, true
}

// boolean returns true or false.
func (t *tree) boolean(n node) (value, ok bool) {
	if !t.present(n, "true or false") {
		return false, false
	}
	b, ok := n.ast.(*ast.BoolNode)
	if !ok {
		t.report(n, "must be true or false, but is %s", kind(n.ast))
		return false, false
	}
	return b.Value, true
}

// list returns the items of a sequence that must not be empty.
func (t *tree) list(n node) []node {
	if !t.present(n, "a list") {
		return nil
	}
	seq, ok := n.ast.(*ast.SequenceNode)
	if !ok {
		t.report(n, "must be a list, but is %s", kind(n.ast))
		return nil
	}
	if len(seq.Values) == 0 {
		t.report(n, "must name at least one")
		return nil
	}
	items := make([]node, len(seq.Values))
	for i, v := range seq.Values {
		items[i] = node{ast: v, path: fmt.Sprintf("%s[%d]", n.path, i), at: placeOf(v)}
		if v.Type() == ast.NullType {
			items[i].at = n.at
		}
	}
	return items
}
