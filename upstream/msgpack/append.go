package msgpack

import (
	"encoding/binary"
	"math"
)

// AppendInt appends an integer in its shortest form.
func AppendInt(b []byte, v int64) []byte {
	switch {
	case v >= 0:
		return AppendUint(b, uint64(v))
	case v >= -32:
		return append(b, byte(v))
	case v >= math.MinInt8:
		return append(b, 0xd0, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}

// AppendUint appends an integer in its shortest form.
func AppendUint(b []byte, v uint64) []byte {
	switch {
	case v <= 0x7f:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

// AppendText appends a string.
func AppendText(b []byte, v string) []byte {
	switch n := len(v); {
	case n <= 0x1f:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, 0xd9, byte(n))
	default:
		b = appendCount(b, 0xda, n)
	}
	return append(b, v...)
}

// AppendMapHeader appends the header of a map; its n keys follow, each with its value.
func AppendMapHeader(b []byte, n int) []byte {
	if n <= 0x0f {
		return append(b, 0x80|byte(n))
	}
	return appendCount(b, 0xde, n)
}

// appendCount appends a type byte with a count of two bytes, or the next type byte with a count of four. The format has no
// larger counts.
func appendCount(b []byte, kind byte, n int) []byte {
	if n <= math.MaxUint16 {
		return binary.BigEndian.AppendUint16(append(b, kind), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, kind+1), uint32(n))
}
