package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

const wantShare = "a number from 0 to 1"

// parseValue parses text of any source into the setting's field. On a fault it leaves the field, and returns the accepted values.
func parseValue(s Setting, text string) (want string) {
	switch v := s.To.(type) {
	case *string:
		*v = text
	case *Secret:
		*v = trimSecret(text)
	case *RedisURL:
		*v = RedisURL(text)
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return "true or false"
		}
		*v = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return s.bounds()
		}
		*v = n
	case *float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 0 && n <= 1) {
			return wantShare
		}
		*v = n
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return "a Go duration such as 450s"
		}
		*v = d
	case *Wait:
		d, err := time.ParseDuration(text)
		switch {
		case text == waitAuto:
			d = time.Duration(WaitAuto)
		case err != nil:
			return "auto, or a Go duration such as 5s"
		}
		*v = Wait(d)
	case *ByteSize:
		n, ok := parseByteSize(text)
		if !ok {
			return "a whole number of bytes, KiB, MiB or GiB, such as 32MiB"
		}
		*v = n
	case *[]string:
		*v = splitList(text)
	case *[]InstanceConfig:
		*v = instancesAt(splitList(text)...)
	}
	return ""
}

// FormatValue is the inverse of parseValue, except that it hides secrets.
func FormatValue(from any) string {
	switch v := reflect.ValueOf(from).Elem().Interface().(type) {
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case time.Duration:
		return FormatDuration(v)
	case []string:
		return strings.Join(v, ",")
	case []InstanceConfig:
		urls := make([]string, len(v))
		for i, inst := range v {
			urls[i] = inst.BaseURL
		}
		return strings.Join(urls, ",")
	default:
		return fmt.Sprint(v)
	}
}

func valueKind(to any) string {
	switch to.(type) {
	case *bool:
		return "bool"
	case *int, *float64:
		return "number"
	case *time.Duration, *Wait:
		return "duration"
	case *ByteSize:
		return "size"
	case *[]string:
		return "names"
	case *[]InstanceConfig, *RedisURL:
		return "URL"
	default:
		return "text"
	}
}

// FormatDuration writes 450s, as vLLM's documentation and ours do; time.Duration writes 7m30s.
func FormatDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return d.String()
}

// splitList reads "a, b,c"; a blank text is an empty list. No item contains a comma.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	items := strings.Split(text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// ByteSize is a number of bytes with a binary unit: 32MiB.
type ByteSize int64

const (
	mebibyte ByteSize = 1 << 20
	gibibyte ByteSize = 1 << 30
)

// byteUnits go from the largest to bytes, each 1,024 times the next.
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

// parseByteSize refuses MB and GB, which many readers take for powers of ten.
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

// Wait is a duration, or WaitAuto.
type Wait time.Duration

// WaitAuto lets the proxy learn the wait.
const WaitAuto Wait = -1

const waitAuto = "auto"

// String returns auto or the duration.
func (w Wait) String() string {
	if w == WaitAuto {
		return waitAuto
	}
	return FormatDuration(time.Duration(w))
}
