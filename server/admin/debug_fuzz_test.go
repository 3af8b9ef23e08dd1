package admin

import (
	"slices"
	"strings"
	"testing"
)

// Whatever is accepted is one of the words, and says no member twice.
func FuzzLevel(f *testing.F) {
	for _, body := range []string{`{"level":"debug"}`, `{"level":"\u0069nfo"}`, `{"level":"warn","level":"warn"}`, `{"LEVEL":"warn"}`, `{"level":"error"} {}`, `null`, `[]`} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		level, err := readLevel(strings.NewReader(body))
		if err != nil {
			return
		}
		if !slices.Contains(levels(), strings.ToLower(level.String())) {
			t.Errorf("%q: %v", body, level)
		}
		if _, err := readLevel(strings.NewReader(strings.Replace(body, "{", `{"level":"info",`, 1))); err == nil {
			t.Errorf("%q: a member that is there twice is read", body)
		}
	})
}
