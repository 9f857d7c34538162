package wire

import (
	"encoding/hex"
	"errors"
)

// Limits on what a decoded value may hold. A peer that exceeds one gets
// [ErrLimit], never memory.
const (
	MaxDepth    = 32      // nesting of lists, maps, arrays and descriptors
	MaxElements = 1 << 16 // elements of one compound, and zero-width elements of one value
)

// Errors that every decoding function returns, wrapped or bare.
var (
	ErrShort   = errors.New("value is cut short")
	ErrLimit   = errors.New("value exceeds a decoding limit")
	ErrType    = errors.New("value has the wrong type")
	ErrInvalid = errors.New("value is malformed")
)

// Decoded values are nil, bool, uint8, uint16, uint32, uint64, int8, int16,
// int32, int64, float32, float64, string and []byte (binary), plus the types
// below for what Go has no type for (part 1.6).
type (
	// Symbol is a string of ASCII from a constrained domain.
	Symbol string
	// Char is one UTF-32 code unit, as sent.
	Char uint32
	// Timestamp counts milliseconds since the Unix epoch.
	Timestamp int64
	// UUID is in RFC 4122 byte order.
	UUID [16]byte
	// Decimal32 is an IEEE 754 decimal, kept as its bytes.
	Decimal32 [4]byte
	// Decimal64 is an IEEE 754 decimal, kept as its bytes.
	Decimal64 [8]byte
	// Decimal128 is an IEEE 754 decimal, kept as its bytes.
	Decimal128 [16]byte
	// List is a sequence of values of any types.
	List []any
	// Map keeps its pairs in wire order; keys may be of any type.
	Map []Pair
	// Pair is one key and value of a Map.
	Pair struct{ Key, Value any }
	// Described is a value with a descriptor, usually a uint64 or a Symbol.
	Described struct{ Descriptor, Value any }
	// Array holds values of one type. Code is the widest constructor of that
	// type, so an empty array keeps its element type; Descriptor is nil unless
	// the elements are described.
	Array struct {
		Code       byte
		Descriptor any
		Elements   []any
	}
)

// String is the usual 8-4-4-4-12 form.
func (u UUID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Get returns the value of a string or symbol key, nil if it is absent.
func (m Map) Get(key string) any {
	for _, p := range m {
		switch k := p.Key.(type) {
		case string:
			if k == key {
				return p.Value
			}
		case Symbol:
			if string(k) == key {
				return p.Value
			}
		}
	}
	return nil
}

// Text returns the value of key if it is a string or a symbol, else "".
func (m Map) Text(key string) string {
	switch v := m.Get(key).(type) {
	case string:
		return v
	case Symbol:
		return string(v)
	}
	return ""
}

// Set replaces the value of a string key, or appends the pair.
func (m Map) Set(key string, value any) Map {
	for i, p := range m {
		if k, ok := p.Key.(string); ok && k == key {
			m[i].Value = value
			return m
		}
	}
	return append(m, Pair{key, value})
}

// Constructors of part 1.6. The names carry the width where a type has several.
const (
	codeDescribed  = 0x00
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBool       = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
	codeUUID       = 0x98
	codeBinary8    = 0xa0
	codeString8    = 0xa1
	codeSymbol8    = 0xa3
	codeBinary32   = 0xb0
	codeString32   = 0xb1
	codeSymbol32   = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0
)

// Element codes for building arrays; see [Array].
const (
	ArrayUUID      = codeUUID
	ArrayTimestamp = codeTimestamp
	ArrayLong      = codeLong
	ArraySymbol    = codeSymbol32
	ArrayString    = codeString32
)

// widest maps every constructor to the one this package writes for its type
// inside an array, 0 for an unknown constructor.
func widest(code byte) byte {
	switch code {
	case codeTrue, codeFalse, codeBool:
		return codeBool
	case codeUint0, codeSmallUint, codeUint:
		return codeUint
	case codeUlong0, codeSmallUlong, codeUlong:
		return codeUlong
	case codeSmallInt, codeInt:
		return codeInt
	case codeSmallLong, codeLong:
		return codeLong
	case codeBinary8, codeBinary32:
		return codeBinary32
	case codeString8, codeString32:
		return codeString32
	case codeSymbol8, codeSymbol32:
		return codeSymbol32
	case codeList0, codeList8, codeList32:
		return codeList32
	case codeMap8, codeMap32:
		return codeMap32
	case codeArray8, codeArray32:
		return codeArray32
	case codeNull, codeUbyte, codeByte, codeUshort, codeShort, codeFloat, codeChar, codeDecimal32,
		codeDouble, codeTimestamp, codeDecimal64, codeDecimal128, codeUUID:
		return code
	}
	return 0
}
