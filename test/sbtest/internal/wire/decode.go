package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// Decode reads one value and returns what follows it. The value shares no
// memory with b.
func Decode(b []byte) (v any, rest []byte, err error) {
	d := decoder{b: b, budget: MaxElements}
	v, err = d.value()
	if err != nil {
		return nil, b, err
	}
	return v, d.b, nil
}

// Skip returns what follows the value at the start of b. It checks that the
// value is there in full, not what is inside it.
func Skip(b []byte) (rest []byte, err error) {
	for depth := 0; ; depth++ {
		if len(b) == 0 {
			return nil, ErrShort
		}
		if depth > MaxDepth {
			return nil, ErrLimit
		}
		if b[0] != codeDescribed {
			break
		}
		if b, err = Skip(b[1:]); err != nil {
			return nil, err
		}
	}
	n, err := bodyLen(b[0], b[1:])
	if err != nil {
		return nil, err
	}
	return b[1+n:], nil
}

// bodyLen is the number of bytes that follow a constructor, its length prefix
// included; the high nibble of the constructor says how to find it (part 1.2).
func bodyLen(code byte, b []byte) (int, error) {
	if widest(code) == 0 {
		return 0, fmt.Errorf("constructor 0x%02x: %w", code, ErrInvalid)
	}
	n := 0
	switch code >> 4 {
	case 0x4:
	case 0x5:
		n = 1
	case 0x6:
		n = 2
	case 0x7:
		n = 4
	case 0x8:
		n = 8
	case 0x9:
		n = 16
	case 0xa, 0xc, 0xe:
		if len(b) < 1 {
			return 0, ErrShort
		}
		n = 1 + int(b[0])
	default:
		if len(b) < 4 {
			return 0, ErrShort
		}
		size := binary.BigEndian.Uint32(b)
		if uint64(size) > uint64(len(b)) {
			return 0, ErrShort
		}
		n = 4 + int(size)
	}
	if n > len(b) {
		return 0, ErrShort
	}
	return n, nil
}

type decoder struct {
	b      []byte
	depth  int
	budget int // zero-width elements still allowed
}

func (d *decoder) enter() error {
	if d.depth++; d.depth > MaxDepth {
		return fmt.Errorf("nesting: %w", ErrLimit)
	}
	return nil
}

func (d *decoder) leave() { d.depth-- }

func (d *decoder) value() (any, error) {
	if len(d.b) == 0 {
		return nil, ErrShort
	}
	code := d.b[0]
	d.b = d.b[1:]
	if code != codeDescribed {
		return d.body(code)
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	desc, err := d.value()
	if err != nil {
		return nil, err
	}
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	return Described{desc, v}, nil
}

// body reads what follows a primitive constructor.
func (d *decoder) body(code byte) (any, error) {
	n, err := bodyLen(code, d.b)
	if err != nil {
		return nil, err
	}
	b := d.b[:n]
	switch code {
	case codeList8, codeList32, codeMap8, codeMap32, codeArray8, codeArray32:
		return d.compound(code, n)
	}
	d.b = d.b[n:]
	return scalar(code, b)
}

func scalar(code byte, b []byte) (any, error) {
	switch code {
	case codeNull:
		return nil, nil
	case codeTrue:
		return true, nil
	case codeFalse:
		return false, nil
	case codeUint0:
		return uint32(0), nil
	case codeUlong0:
		return uint64(0), nil
	case codeList0:
		return List{}, nil
	case codeUbyte:
		return b[0], nil
	case codeByte:
		return int8(b[0]), nil
	case codeSmallUint:
		return uint32(b[0]), nil
	case codeSmallUlong:
		return uint64(b[0]), nil
	case codeSmallInt:
		return int32(int8(b[0])), nil
	case codeSmallLong:
		return int64(int8(b[0])), nil
	case codeBool:
		if b[0] > 1 {
			return nil, fmt.Errorf("boolean 0x%02x: %w", b[0], ErrInvalid)
		}
		return b[0] == 1, nil
	case codeUshort:
		return binary.BigEndian.Uint16(b), nil
	case codeShort:
		return int16(binary.BigEndian.Uint16(b)), nil
	case codeUint:
		return binary.BigEndian.Uint32(b), nil
	case codeInt:
		return int32(binary.BigEndian.Uint32(b)), nil
	case codeFloat:
		return math.Float32frombits(binary.BigEndian.Uint32(b)), nil
	case codeChar:
		return Char(binary.BigEndian.Uint32(b)), nil
	case codeDecimal32:
		return Decimal32(b), nil
	case codeUlong:
		return binary.BigEndian.Uint64(b), nil
	case codeLong:
		return int64(binary.BigEndian.Uint64(b)), nil
	case codeDouble:
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	case codeTimestamp:
		return Timestamp(binary.BigEndian.Uint64(b)), nil
	case codeDecimal64:
		return Decimal64(b), nil
	case codeDecimal128:
		return Decimal128(b), nil
	case codeUUID:
		return UUID(b), nil
	case codeBinary8:
		return append([]byte{}, b[1:]...), nil
	case codeBinary32:
		return append([]byte{}, b[4:]...), nil
	case codeString8, codeString32:
		b = b[lenWidth(code):]
		if !utf8.Valid(b) {
			return nil, fmt.Errorf("string is not UTF-8: %w", ErrInvalid)
		}
		return string(b), nil
	case codeSymbol8, codeSymbol32:
		return Symbol(b[lenWidth(code):]), nil
	}
	return nil, fmt.Errorf("constructor 0x%02x: %w", code, ErrInvalid)
}

// lenWidth is the width of the length prefix of a variable-width constructor.
func lenWidth(code byte) int {
	if code>>4&1 == 0 { // 0xa_, 0xc_, 0xe_
		return 1
	}
	return 4
}

// compound reads a list, map or array whose body is the next n bytes.
func (d *decoder) compound(code byte, n int) (any, error) {
	after := d.b[n:]
	w := lenWidth(code)
	if n < 2*w {
		return nil, ErrShort
	}
	count := uint32(d.b[w])
	if w == 4 {
		count = binary.BigEndian.Uint32(d.b[4:])
	}
	if count > MaxElements {
		return nil, fmt.Errorf("%d elements: %w", count, ErrLimit)
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	d.b = d.b[2*w : n]
	var v any
	var err error
	switch widest(code) {
	case codeList32:
		v, err = d.list(int(count))
	case codeMap32:
		v, err = d.pairs(int(count))
	default:
		v, err = d.array(int(count))
	}
	if err != nil {
		return nil, err
	}
	if len(d.b) != 0 {
		return nil, fmt.Errorf("%d bytes left in a compound: %w", len(d.b), ErrInvalid)
	}
	d.b = after
	return v, nil
}

func (d *decoder) list(count int) (List, error) {
	if count > len(d.b) { // every element takes at least its constructor
		return nil, ErrShort
	}
	l := make(List, 0, count)
	for range count {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		l = append(l, v)
	}
	return l, nil
}

func (d *decoder) pairs(count int) (Map, error) {
	if count > len(d.b) {
		return nil, ErrShort
	}
	if count%2 != 0 {
		return nil, fmt.Errorf("map of %d elements: %w", count, ErrInvalid)
	}
	m := make(Map, 0, count/2)
	for range count / 2 {
		k, err := d.value()
		if err != nil {
			return nil, err
		}
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		m = append(m, Pair{k, v})
	}
	return m, nil
}

func (d *decoder) array(count int) (any, error) {
	var a Array
	if len(d.b) == 0 {
		return nil, ErrShort
	}
	code := d.b[0]
	d.b = d.b[1:]
	if code == codeDescribed {
		desc, err := d.value()
		if err != nil {
			return nil, err
		}
		if len(d.b) == 0 {
			return nil, ErrShort
		}
		a.Descriptor = desc
		code = d.b[0]
		d.b = d.b[1:]
		if desc == nil { // nil marks "not described" in Array
			return nil, fmt.Errorf("null descriptor of an array: %w", ErrInvalid)
		}
	}
	if a.Code = widest(code); a.Code == 0 {
		return nil, fmt.Errorf("array of constructor 0x%02x: %w", code, ErrInvalid)
	}
	if code>>4 == 0x4 {
		if d.budget -= count; d.budget < 0 {
			return nil, fmt.Errorf("zero-width elements: %w", ErrLimit)
		}
	} else if count > len(d.b) {
		return nil, ErrShort
	}
	a.Elements = make([]any, 0, count)
	for range count {
		v, err := d.body(code)
		if err != nil {
			return nil, err
		}
		a.Elements = append(a.Elements, v)
	}
	return a, nil
}
