package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// plainly replaces in an answer what differs between any two runs.
func plainly(raw []byte) string {
	raw = regexp.MustCompile(`"id":"[^"]*"`).ReplaceAll(raw, []byte(`"id":"…"`))
	return string(regexp.MustCompile(`"created":\d+`).ReplaceAll(raw, []byte(`"created":0`)))
}

func sameBytes(t *testing.T, got, want []string) {
	t.Helper()
	for i := range got {
		if got[i] == want[i] {
			continue
		}
		a, b := strings.Split(got[i], "\n\n"), strings.Split(want[i], "\n\n")
		at := 0
		for at < min(len(a), len(b))-1 && a[at] == b[at] {
			at++
		}
		t.Fatalf("turn %d differs at event %d of %d and %d:\ngot  %.700s\nwant %.700s", i+1, at, len(a), len(b), a[at], b[at])
	}
}
