package upstream

import (
	"strings"
	"testing"
)

func TestSalted_IsNoLongerThanEnginesTake(t *testing.T) {
	const prefix, hash = "quarantine-0123456789012345678901~", 43
	letters := func(n int) string { return strings.Repeat("ä", n) }
	for _, row := range []struct {
		prefix, salt string
		kept         bool
	}{
		{"", letters(128), true}, {prefix, "", true}, {prefix, letters(94), true}, {prefix, letters(95), false}, {prefix, letters(128), false},
		{prefix, letters(129), true}, {prefix, letters(100) + "/", true}, // engines refuse these from a client, too
	} {
		got := Salted(row.prefix, row.salt)
		if (got == row.prefix+row.salt) != row.kept || !row.kept && len(got) != len(prefix)+hash {
			t.Errorf("%q of %d bytes: got %q", row.prefix, len(row.salt), got)
		}
	}
	if a, b := Salted(prefix, letters(100)), Salted(prefix, letters(101)); a == b || a != Salted(prefix, letters(100)) {
		t.Errorf("salts %q and %q, want one for each of the client's", a, b)
	}
}
