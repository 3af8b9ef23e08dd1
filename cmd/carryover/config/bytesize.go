package config

import (
	"math"
	"strconv"
	"strings"
)

// ByteSize is a number of bytes, written with a binary unit: 32MiB.
type ByteSize int64

const (
	mebibyte ByteSize = 1 << 20
	gibibyte ByteSize = 1 << 30
)

// byteUnits are the units from the largest, each 1,024 times the next. The last is a byte.
var byteUnits = [...]string{"GiB", "MiB", "KiB", ""} //nolint:gochecknoglobals // a table that nothing changes

// String uses the largest unit that gives a whole number.
func (b ByteSize) String() string {
	for i, unit := range byteUnits {
		if size := gibibyte >> (10 * i); b != 0 && b%size == 0 {
			return strconv.FormatInt(int64(b/size), 10) + unit
		}
	}
	return "0"
}

// parseByteSize refuses MB and GB, because many readers take them for powers of ten.
func parseByteSize(text string) (ByteSize, bool) {
	for i, unit := range byteUnits {
		if digits, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseUint(digits, 10, 63)
			if size := gibibyte >> (10 * i); err == nil && ByteSize(n) <= math.MaxInt64/size {
				return ByteSize(n) * size, true
			}
			break
		}
	}
	return 0, false
}
