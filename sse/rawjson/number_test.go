package rawjson

import (
	"math"
	"testing"
)

func TestInteger_IsExactOrCapped(t *testing.T) {
	for _, row := range []struct {
		raw  string
		want int
		ok   bool
	}{
		{`0`, 0, true},
		{`-7`, -7, true},
		{`1000000000000000001`, 1000000000000000001, true},
		{`9223372036854775808`, math.MaxInt, true},
		{`18446744073709551617`, math.MaxInt, true}, // 1 modulo 2^64
		{`-18446744073709551617`, -math.MaxInt, true},
		{`-0`, 0, false},
		{`1.0`, 0, false},
		{`1e0`, 0, false},
		{`"1"`, 0, false},
		{``, 0, false},
	} {
		if got, ok := Integer([]byte(row.raw)); ok != row.ok || ok && got != row.want {
			t.Errorf("Integer(%s): got %d, %t, want %d, %t", row.raw, got, ok, row.want, row.ok)
		}
	}
}
