package wire

import (
	"encoding/binary"
	"fmt"
)

// Fields walks the fields of a described list, the form of every performative.
// Missing trailing fields and nulls read as absent (part 1.4). The first error
// sticks; check Err once at the end.
type Fields struct {
	b   []byte
	n   int
	err error
}

// ParseFields opens the list at the start of b.
func ParseFields(b []byte) (f Fields, rest []byte, err error) {
	if len(b) == 0 {
		return f, nil, ErrShort
	}
	code := b[0]
	n, err := bodyLen(code, b[1:])
	if err != nil {
		return f, nil, err
	}
	body := b[1 : 1+n]
	rest = b[1+n:]
	switch code {
	case codeList0:
		return f, rest, nil
	case codeList8:
		if len(body) < 2 {
			return f, nil, ErrShort
		}
		return Fields{b: body[2:], n: int(body[1])}, rest, nil
	case codeList32:
		if len(body) < 8 {
			return f, nil, ErrShort
		}
		count := binary.BigEndian.Uint32(body[4:])
		if count > MaxElements {
			return f, nil, ErrLimit
		}
		return Fields{b: body[8:], n: int(count)}, rest, nil
	}
	return f, nil, fmt.Errorf("constructor 0x%02x where a list belongs: %w", code, ErrType)
}

// ParseDescribed opens a described list and returns its numeric descriptor.
// Symbolic descriptors of the AMQP domain are not used by any known peer and
// are refused.
func ParseDescribed(b []byte) (code uint64, f Fields, rest []byte, err error) {
	if len(b) < 3 {
		return 0, f, nil, ErrShort
	}
	if b[0] != codeDescribed {
		return 0, f, nil, fmt.Errorf("constructor 0x%02x where a description belongs: %w", b[0], ErrType)
	}
	code, b, err = descriptor(b[1:])
	if err != nil {
		return 0, f, nil, err
	}
	f, rest, err = ParseFields(b)
	return code, f, rest, err
}

func descriptor(b []byte) (code uint64, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, ErrShort
	}
	switch {
	case b[0] == codeSmallUlong && len(b) >= 2:
		return uint64(b[1]), b[2:], nil
	case b[0] == codeUlong && len(b) >= 9:
		return binary.BigEndian.Uint64(b[1:]), b[9:], nil
	case b[0] == codeUlong0:
		return 0, b[1:], nil
	}
	return 0, nil, fmt.Errorf("descriptor with constructor 0x%02x: %w", b[0], ErrType)
}

// Err is the first error met.
func (f *Fields) Err() error { return f.err }

// next returns the constructor and body of the next field; ok is false when it
// is absent, null or broken.
func (f *Fields) next() (code byte, body []byte, ok bool) {
	if f.n == 0 || f.err != nil {
		return 0, nil, false
	}
	f.n--
	if len(f.b) == 0 {
		f.err = ErrShort
		return 0, nil, false
	}
	code = f.b[0]
	if code == codeNull {
		f.b = f.b[1:]
		return 0, nil, false
	}
	if code == codeDescribed {
		f.err = fmt.Errorf("described value where a primitive belongs: %w", ErrType)
		return 0, nil, false
	}
	n, err := bodyLen(code, f.b[1:])
	if err != nil {
		f.err = err
		return 0, nil, false
	}
	body = f.b[1 : 1+n]
	f.b = f.b[1+n:]
	return code, body, true
}

func (f *Fields) wrong(code byte) {
	if f.err == nil {
		f.err = fmt.Errorf("constructor 0x%02x: %w", code, ErrType)
	}
}

// Raw returns the next field's bytes, nil if it is absent or null.
func (f *Fields) Raw() []byte {
	if f.n == 0 || f.err != nil {
		return nil
	}
	f.n--
	rest, err := Skip(f.b)
	if err != nil {
		f.err = err
		return nil
	}
	raw := f.b[:len(f.b)-len(rest)]
	f.b = rest
	if raw[0] == codeNull {
		return nil
	}
	return raw
}

// Value decodes the next field, whatever it is.
func (f *Fields) Value() any {
	raw := f.Raw()
	if raw == nil {
		return nil
	}
	v, _, err := Decode(raw)
	if err != nil {
		f.err = err
	}
	return v
}

// Map reads a map; nil if absent.
func (f *Fields) Map() Map {
	v := f.Value()
	if v == nil {
		return nil
	}
	m, ok := v.(Map)
	if !ok && f.err == nil {
		f.err = fmt.Errorf("%T where a map belongs: %w", v, ErrType)
	}
	return m
}

// Text reads a string or symbol.
func (f *Fields) Text() (s string, ok bool) {
	code, body, ok := f.next()
	if !ok {
		return "", false
	}
	switch widest(code) {
	case codeString32, codeSymbol32:
		return string(body[lenWidth(code):]), true
	}
	f.wrong(code)
	return "", false
}

// Binary reads a binary without copying it.
func (f *Fields) Binary() []byte {
	code, body, ok := f.next()
	if !ok {
		return nil
	}
	if widest(code) != codeBinary32 {
		f.wrong(code)
		return nil
	}
	return body[lenWidth(code):]
}

// Bool reads a boolean; absent is false.
func (f *Fields) Bool() bool {
	code, body, ok := f.next()
	if !ok {
		return false
	}
	switch code {
	case codeTrue:
		return true
	case codeFalse:
		return false
	case codeBool:
		return body[0] != 0
	}
	f.wrong(code)
	return false
}

// Uint reads an unsigned integer of at most 64 bits.
func (f *Fields) Uint() (v uint64, ok bool) {
	code, body, ok := f.next()
	if !ok {
		return 0, false
	}
	switch code {
	case codeUint0, codeUlong0:
		return 0, true
	case codeUbyte, codeSmallUint, codeSmallUlong:
		return uint64(body[0]), true
	case codeUshort:
		return uint64(binary.BigEndian.Uint16(body)), true
	case codeUint:
		return uint64(binary.BigEndian.Uint32(body)), true
	case codeUlong:
		return binary.BigEndian.Uint64(body), true
	}
	f.wrong(code)
	return 0, false
}

// Uint32 reads an unsigned integer that must fit 32 bits.
func (f *Fields) Uint32() (v uint32, ok bool) {
	u, ok := f.Uint()
	if u > 1<<32-1 {
		f.err = fmt.Errorf("%d in 32 bits: %w", u, ErrInvalid)
		return 0, false
	}
	return uint32(u), ok
}

// builder writes a described list field by field and drops trailing nulls.
type builder struct {
	b           []byte
	start       int
	count, keep int // fields written; fields up to the last that is not null
	keptLen     int
}

// described starts a list with a one-byte descriptor.
func described(b []byte, code Code) builder {
	b = append(b, codeDescribed, codeSmallUlong, byte(code), codeList32)
	start := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	return builder{b: b, start: start, keptLen: len(b)}
}

func (l *builder) wrote() {
	l.count++
	l.keep, l.keptLen = l.count, len(l.b)
}

func (l *builder) null()           { l.b = append(l.b, codeNull); l.count++ }
func (l *builder) uint(v uint32)   { l.b = appendUint(l.b, v); l.wrote() }
func (l *builder) ulong(v uint64)  { l.b = appendUlong(l.b, v); l.wrote() }
func (l *builder) bool(v bool)     { l.b = appendBool(l.b, v); l.wrote() }
func (l *builder) string(v string) { l.b = appendString(l.b, v); l.wrote() }
func (l *builder) symbol(v string) { l.b = appendVar(l.b, codeSymbol8, v); l.wrote() }
func (l *builder) binary(v []byte) { l.b = appendBinary(l.b, v); l.wrote() }
func (l *builder) value(v any)     { l.b = Append(l.b, v); l.wrote() }
func (l *builder) ubyte(v uint8)   { l.b = append(l.b, codeUbyte, v); l.wrote() }
func (l *builder) ushort(v uint16) {
	l.b = binary.BigEndian.AppendUint16(append(l.b, codeUshort), v)
	l.wrote()
}

func (l *builder) optUint(v uint32, has bool) {
	if has {
		l.uint(v)
		return
	}
	l.null()
}

// done closes the list, in the short form when it fits.
func (l *builder) done() []byte {
	b := l.b[:l.keptLen]
	if l.keep == 0 {
		b[l.start-1] = codeList0
		return b[:l.start]
	}
	size := len(b) - l.start - 8
	if size+1 < 256 && l.keep < 256 {
		b[l.start-1] = codeList8
		b[l.start] = byte(size + 1)
		b[l.start+1] = byte(l.keep)
		copy(b[l.start+2:], b[l.start+8:])
		return b[:len(b)-6]
	}
	return patch(b, l.start, l.keep)
}
