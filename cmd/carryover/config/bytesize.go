package config

import (
	"math"
	"strconv"
	"strings"
)

// ByteSize is a number of bytes, written with a binary unit: 32MiB.
type ByteSize int64

const (
	kibibyte ByteSize = 1 << 10
	mebibyte ByteSize = 1 << 20
	gibibyte ByteSize = 1 << 30
)

// String uses the largest unit that gives a whole number.
func (b ByteSize) String() string {
	n, unit := b, ""
	switch {
	case b == 0:
	case b%gibibyte == 0:
		n, unit = b/gibibyte, "GiB"
	case b%mebibyte == 0:
		n, unit = b/mebibyte, "MiB"
	case b%kibibyte == 0:
		n, unit = b/kibibyte, "KiB"
	}
	return strconv.FormatInt(int64(n), 10) + unit
}

// parseByteSize refuses MB and GB, because many readers take them for powers of ten.
func parseByteSize(text string) (ByteSize, bool) {
	unit := ByteSize(1)
	digits := text
	if cut, ok := strings.CutSuffix(text, "GiB"); ok {
		digits, unit = cut, gibibyte
	} else if cut, ok := strings.CutSuffix(text, "MiB"); ok {
		digits, unit = cut, mebibyte
	} else if cut, ok := strings.CutSuffix(text, "KiB"); ok {
		digits, unit = cut, kibibyte
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || ByteSize(n) > math.MaxInt64/unit {
		return 0, false
	}
	return ByteSize(n) * unit, true
}
