// Package rawjsontest reads JSON with encoding/json, as the reference that package rawjson and the readers on top of it are
// compared with. Only tests import it.
package rawjsontest

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// Member is a top-level member as the reference sees it.
type Member struct {
	Name string
	Raw  []byte
}

var escapedReplacement = regexp.MustCompile(`(?i)\\ufffd`)

// Members returns the members of a body that rawjson.ParseObject must accept; ok is false for one that it must refuse.
func Members(body []byte) (members []Member, ok bool) {
	if !utf8.Valid(body) || !json.Valid(body) || Depth(body) > 64 {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if opening, err := decoder.Token(); err != nil || opening != json.Delim('{') {
		return nil, false
	}
	names := map[string]bool{}
	for decoder.More() {
		before := decoder.InputOffset()
		token, err := decoder.Token()
		name, isKey := token.(string)
		if err != nil || !isKey || names[name] || len(name) > 256 || len(names) == 256 {
			return nil, false
		}
		// encoding/json decodes an unpaired surrogate as U+FFFD; more of those than
		// were written means one was unpaired.
		written := strings.ReplaceAll(string(body[before:decoder.InputOffset()]), `\\`, "")
		replacements := len(escapedReplacement.FindAllString(written, -1)) + strings.Count(written, "\ufffd")
		if strings.Count(name, "\ufffd") > replacements {
			return nil, false
		}
		names[name] = true
		var raw json.RawMessage
		if decoder.Decode(&raw) != nil {
			return nil, false
		}
		members = append(members, Member{name, raw})
	}
	return members, true
}

// Depth returns how many arrays and objects of body stand inside of each other at most, up to the first fault.
func Depth(body []byte) (deepest int) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	depth := 0
	for {
		token, err := decoder.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// DecodeObject decodes one JSON object and nothing else. Of members that occur twice the last counts.
func DecodeObject(b []byte) (object map[string]any, ok bool) {
	if !json.Valid(b) {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	err := decoder.Decode(&object)
	return object, err == nil && object != nil
}

// Nested returns one array inside of another, levels deep.
func Nested(levels int) string {
	return strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

// Compare checks that body is JSON with exactly these members in this order, values byte for byte.
func Compare(t *testing.T, body []byte, want []Member) {
	t.Helper()
	got, ok := Members(body)
	if !ok {
		t.Fatalf("rewritten body is not acceptable JSON: %q", body)
	}
	if len(got) != len(want) {
		t.Fatalf("got %d members, want %d\n got %q\nwant %q", len(got), len(want), got, want)
	}
	for i := range got {
		if got[i].Name != want[i].Name || !bytes.Equal(got[i].Raw, want[i].Raw) {
			t.Fatalf("member %d: got %s=%s, want %s=%s", i, got[i].Name, got[i].Raw, want[i].Name, want[i].Raw)
		}
	}
}
