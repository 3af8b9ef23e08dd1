package rawjson

import (
	"math"
	"testing"
)

func TestInteger_IsExactOrCapped(t *testing.T) {
	for raw, want := range map[string]int{
		`0`: 0, `-7`: -7, `1000000000000000001`: 1000000000000000001, `9223372036854775808`: math.MaxInt,
		`18446744073709551617`:  math.MaxInt, // 1 modulo 2^64
		`-18446744073709551617`: -math.MaxInt,
	} {
		if got, ok := Integer([]byte(raw)); !ok || got != want {
			t.Errorf("Integer(%s): got %d, %t, want %d", raw, got, ok, want)
		}
	}
	for _, raw := range []string{`-0`, `1.0`, `1e0`, `"1"`, ``} {
		if got, ok := Integer([]byte(raw)); ok {
			t.Errorf("Integer(%s): got %d, want none", raw, got)
		}
	}
}
