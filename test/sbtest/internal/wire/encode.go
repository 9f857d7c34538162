package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Append encodes v with the shortest constructor of its type. Beside the
// decoded types it takes int (as long) and the named integer types of this
// package. It panics on any other type: what is encoded is chosen by this
// program, never by a peer.
func Append(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, codeNull)
	case bool:
		if v {
			return append(b, codeTrue)
		}
		return append(b, codeFalse)
	case uint32:
		return appendUint(b, v)
	case uint64:
		return appendUlong(b, v)
	case int32:
		if v >= -128 && v <= 127 {
			return append(b, codeSmallInt, byte(v))
		}
	case int64:
		if v >= -128 && v <= 127 {
			return append(b, codeSmallLong, byte(v))
		}
	case int:
		return Append(b, int64(v))
	case string:
		return appendString(b, v)
	case Symbol:
		return appendVar(b, codeSymbol8, string(v))
	case []byte:
		return appendBinary(b, v)
	case List:
		return appendList(b, v)
	case Described:
		b = append(b, codeDescribed)
		b = Append(b, v.Descriptor)
		return Append(b, v.Value)
	}
	code := codeOf(v)
	return appendBody(append(b, code), code, v)
}

// codeOf is the widest constructor of v's type.
func codeOf(v any) byte {
	switch v.(type) {
	case nil:
		return codeNull
	case bool:
		return codeBool
	case uint8:
		return codeUbyte
	case int8:
		return codeByte
	case uint16:
		return codeUshort
	case int16:
		return codeShort
	case uint32:
		return codeUint
	case int32:
		return codeInt
	case uint64:
		return codeUlong
	case int64:
		return codeLong
	case float32:
		return codeFloat
	case float64:
		return codeDouble
	case Char:
		return codeChar
	case Timestamp:
		return codeTimestamp
	case Decimal32:
		return codeDecimal32
	case Decimal64:
		return codeDecimal64
	case Decimal128:
		return codeDecimal128
	case UUID:
		return codeUUID
	case []byte:
		return codeBinary32
	case string:
		return codeString32
	case Symbol:
		return codeSymbol32
	case List:
		return codeList32
	case Map:
		return codeMap32
	case Array:
		return codeArray32
	}
	panic(fmt.Sprintf("wire: cannot encode a %T", v))
}

// appendBody writes what follows the widest constructor of v's type.
func appendBody(b []byte, code byte, v any) []byte {
	if codeOf(v) != code {
		panic(fmt.Sprintf("wire: a %T in an array of 0x%02x", v, code))
	}
	be := binary.BigEndian
	switch v := v.(type) {
	case nil:
		return b
	case bool:
		if v {
			return append(b, 1)
		}
		return append(b, 0)
	case uint8:
		return append(b, v)
	case int8:
		return append(b, byte(v))
	case uint16:
		return be.AppendUint16(b, v)
	case int16:
		return be.AppendUint16(b, uint16(v))
	case uint32:
		return be.AppendUint32(b, v)
	case int32:
		return be.AppendUint32(b, uint32(v))
	case uint64:
		return be.AppendUint64(b, v)
	case int64:
		return be.AppendUint64(b, uint64(v))
	case float32:
		return be.AppendUint32(b, math.Float32bits(v))
	case float64:
		return be.AppendUint64(b, math.Float64bits(v))
	case Char:
		return be.AppendUint32(b, uint32(v))
	case Timestamp:
		return be.AppendUint64(b, uint64(v))
	case Decimal32:
		return append(b, v[:]...)
	case Decimal64:
		return append(b, v[:]...)
	case Decimal128:
		return append(b, v[:]...)
	case UUID:
		return append(b, v[:]...)
	case []byte:
		return append(be.AppendUint32(b, uint32(len(v))), v...)
	case string:
		return append(be.AppendUint32(b, uint32(len(v))), v...)
	case Symbol:
		return append(be.AppendUint32(b, uint32(len(v))), v...)
	case List:
		start := len(b)
		b = append(b, make([]byte, 8)...)
		for _, e := range v {
			b = Append(b, e)
		}
		return patch(b, start, len(v))
	case Map:
		start := len(b)
		b = append(b, make([]byte, 8)...)
		for _, p := range v {
			b = Append(Append(b, p.Key), p.Value)
		}
		return patch(b, start, 2*len(v))
	case Array:
		start := len(b)
		b = append(b, make([]byte, 8)...)
		if v.Descriptor != nil {
			b = Append(append(b, codeDescribed), v.Descriptor)
		}
		b = append(b, v.Code)
		for _, e := range v.Elements {
			b = appendBody(b, v.Code, e)
		}
		return patch(b, start, len(v.Elements))
	}
	return b
}

// patch fills in the eight bytes of size and count at start.
func patch(b []byte, start, count int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	binary.BigEndian.PutUint32(b[start+4:], uint32(count))
	return b
}

func appendUint(b []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(b, codeUint0)
	case v < 256:
		return append(b, codeSmallUint, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(b, codeUint), v)
}

func appendUlong(b []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(b, codeUlong0)
	case v < 256:
		return append(b, codeSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(b, codeUlong), v)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, codeTrue)
	}
	return append(b, codeFalse)
}

func appendString(b []byte, s string) []byte { return appendVar(b, codeString8, s) }

// appendVar writes s with the given 8-bit constructor or, above 255 bytes, with
// its 32-bit sibling, which is 0x10 higher (part 1.6).
func appendVar(b []byte, code8 byte, s string) []byte {
	if len(s) < 256 {
		return append(append(b, code8, byte(len(s))), s...)
	}
	return append(binary.BigEndian.AppendUint32(append(b, code8+0x10), uint32(len(s))), s...)
}

func appendBinary(b, v []byte) []byte {
	if len(v) < 256 {
		return append(append(b, codeBinary8, byte(len(v))), v...)
	}
	return append(binary.BigEndian.AppendUint32(append(b, codeBinary32), uint32(len(v))), v...)
}

func appendList(b []byte, l List) []byte {
	if len(l) == 0 {
		return append(b, codeList0)
	}
	return appendBody(append(b, codeList32), codeList32, l)
}
