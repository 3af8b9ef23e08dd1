package upstream

import (
	"encoding/json"
	"strings"
	"testing"
)

func nestedJSON(opening, closing string, levels int) string {
	return strings.Repeat(opening, levels) + "1" + strings.Repeat(closing, levels)
}

func TestValidJSON(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true, ` [1, {"a" : null}] ` + "\r\n\t": true, `"a\u00e9"`: true, `-0.5e+3`: true, `true`: true, `null`: true,
		``: false, ` `: false, `{`: false, `[1,]`: false, `{"a"}`: false, `{"a":1}x`: false, `{} {}`: false, `01`: false, `nul`: false,
		"\"a\nb\"": false, `"\x"`: false, `"a`: false, "\x00": false, "1\x00": false, "\v1": false,
		nestedJSON("[", "]", 64): true, nestedJSON(`{"a":`, "}", 64): true, nestedJSON(`[{"a":`, "}]", 32): true,
		nestedJSON("[", "]", 65): false, nestedJSON(`{"a":`, "}", 65): false, nestedJSON(`[{"a":`, "}]", 33): false,
	} {
		if got := ValidJSON([]byte(text)); got != want {
			t.Errorf("%.80q: got %t, want %t", text, got, want)
		}
	}
}

// FuzzValidJSON compares with encoding/json, which accepts what is nested up to
// 10,000 levels deep. The corpus is in testdata.
func FuzzValidJSON(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		want := json.Valid(data) && referenceDepth(data) <= 64
		if got := ValidJSON(data); got != want {
			t.Errorf("%q: got %t, want %t", data, got, want)
		}
	})
}
