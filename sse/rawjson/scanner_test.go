package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"carryover/sse/rawjson/rawjsontest"
)

func nestedJSON(opening, closing string, levels int) string {
	return strings.Repeat(opening, levels) + "1" + strings.Repeat(closing, levels)
}

// FuzzValid compares with encoding/json, which accepts what is nested up to
// 10,000 levels deep: the readers stop at MaxDepth, and what passes over a value
// must not. More of the corpus is in testdata.
func FuzzValid(f *testing.F) {
	for _, text := range []string{
		`{}`, " [1, {\"a\" : null}] \r\n\t", `"a\u00e9"`, `-0.5e+3`, `true`, `null`, ``, ` `, `{`, `[1,]`, `{"a"}`, `{"a":1}x`, `{} {}`, `01`, `nul`,
		"\"a\nb\"", `"\x"`, `"a`, "\x00", "1\x00", "\v1", nestedJSON("[", "]", 64), nestedJSON(`{"a":`, "}", 64), nestedJSON(`[{"a":`, "}]", 32),
		nestedJSON("[", "]", 65), nestedJSON(`{"a":`, "}", 65), nestedJSON(`[{"a":`, "}]", 33), rawjsontest.Nested(MaxDepth - 1), rawjsontest.Nested(MaxDepth),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(checkValid)
}

func checkValid(t *testing.T, data []byte) {
	t.Helper()
	want := json.Valid(data) && rawjsontest.Depth(data) <= MaxDepth
	if got := Valid(data); got != want {
		t.Errorf("%q: got %t, want %t", data, got, want)
	}
	_, object := rawjsontest.Members(data)
	if o, err := ParseObject(data); (err == nil) != object {
		t.Errorf("%q: ParseObject: %v, want accepted %t", data, err, object)
	} else if object && !bytes.Equal(o.Rewrite(nil), data) {
		t.Errorf("%q: rewritten without edits: %q", data, o.Rewrite(nil))
	}
	if passes(data) != json.Valid(data) && (want || json.Valid(data)) {
		t.Errorf("%q: Pass accepts it: %t, want %t", data, passes(data), json.Valid(data))
	}
}

// passes reports whether data is one value to Pass.
func passes(data []byte) bool {
	s := Scanner{Data: data}
	s.Space()
	return s.Pass() == nil && s.End()
}

func TestPass_GoesDeeperThanIsRead(t *testing.T) {
	for text, want := range map[string]bool{
		nestedJSON("[", "]", 64): true, nestedJSON(`{"a":`, "}", 65): true, nestedJSON(`[ {"]}" : `, "}\n]", 1<<19): true,
		nestedJSON("[", "]", 64)[:100]: false, nestedJSON("[", "]", 200)[:300]: false, nestedJSON("[", "]", 200) + "]": false,
		nestedJSON(`{"a\x":`, "}", 65): false, nestedJSON(`[`, "]", 63) + " 1": false, strings.Repeat("[", 12<<20): false,
		nestedJSON(`{"a":`, "}", 200)[:410] + `"`: false, nestedJSON("[", "]", 64) + "\x00": false,
	} {
		if got := passes([]byte(text)); got != want {
			t.Errorf("%.80q: got %t, want %t", text, got, want)
		}
	}
	// Behind what is passed over, depth counts again.
	s := Scanner{Data: []byte("[" + nestedJSON("[", "]", 100) + "," + nestedJSON("[", "]", 64) + "]")}
	if _, err := s.Open('['); err != nil {
		t.Fatal(err)
	}
	must(t, s.Pass())
	if more, err := s.Separator(']'); !more || err != nil {
		t.Fatalf("Separator: %t, %v", more, err)
	}
	if err := s.Skip(); err == nil {
		t.Error("65 levels are read")
	}
}

func TestObjects_AgreeWithEncodingJSON(t *testing.T) {
	const alphabet = "{}[]\",:\\ \n\t\x00\x1f\x7f\xff0123789-+.eEtrufalsn/bx"
	for _, object := range []string{
		` { "a" : 1 , "b" : [ ] } `, `{}`, `{"a":{"b":[{},[1,2],null,true,false]},"c":""}`,
		`{"a":-0,"b":0.10,"c":1e5,"d":-12.5E+07,"e":3e-1}`, `{"\"\\\/\b\f\n\r\t\u00e9\uD83d":"\u0000"}`, `{"a":"é😀","a":[[[0]]]}`,
	} {
		for i := range object {
			checkValid(t, []byte(object[:i]))
			checkValid(t, []byte(object[:i]+object[i+1:]))
			for k := range alphabet {
				checkValid(t, []byte(object[:i]+alphabet[k:k+1]+object[i:]))
				checkValid(t, []byte(object[:i]+alphabet[k:k+1]+object[i+1:]))
			}
		}
	}
}

func TestIsEmpty(t *testing.T) {
	for raw, want := range map[string]bool{
		`null`: true, `[]`: true, "{\t\r\n }": true, `[ ]`: true, `{"a":1}`: false, `[0]`: false, `""`: false, `0`: false, `false`: false,
	} {
		if got := IsEmpty([]byte(raw)); got != want {
			t.Errorf("IsEmpty(%s) = %t, want %t", raw, got, want)
		}
	}
}
