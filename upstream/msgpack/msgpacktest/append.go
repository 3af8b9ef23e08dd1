// Package msgpacktest writes the MessagePack values that Carryover reads and never writes, for tests.
package msgpacktest

import (
	"encoding/binary"
	"math"
)

// AppendNil appends nil.
func AppendNil(b []byte) []byte { return append(b, 0xc0) }

// AppendBool appends a boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0xc3)
	}
	return append(b, 0xc2)
}

// AppendFloat appends a floating-point number of 64 bits.
func AppendFloat(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

// AppendBytes appends binary data.
func AppendBytes(b, v []byte) []byte {
	if n := len(v); n <= math.MaxUint8 {
		b = append(b, 0xc4, byte(n))
	} else {
		b = appendCount(b, 0xc5, n)
	}
	return append(b, v...)
}

// AppendArrayHeader appends the header of an array; its n elements follow.
func AppendArrayHeader(b []byte, n int) []byte {
	if n <= 0x0f {
		return append(b, 0x90|byte(n))
	}
	return appendCount(b, 0xdc, n)
}

// appendCount appends a type byte with a count of two bytes, or the next type byte with a count of four.
func appendCount(b []byte, kind byte, n int) []byte {
	if n <= math.MaxUint16 {
		return binary.BigEndian.AppendUint16(append(b, kind), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, kind+1), uint32(n))
}
