package sse

import (
	"encoding/json"
	"strings"
	"testing"
)

// complete reports whether a walk finds object to be one valid JSON object.
func complete(object []byte) bool {
	m := newMembers(object)
	for m.next() {
	}
	return m.complete
}

func TestMembers_AgreesWithEncodingJSON(t *testing.T) {
	const alphabet = "{}[]\",:\\ \n\t\x00\x1f\x7f\xff0123789-+.eEtrufalsn/bx"
	check := func(object string) {
		t.Helper()
		want := json.Valid([]byte(object)) && strings.HasPrefix(strings.TrimLeft(object, " \t\r\n"), "{")
		if got := complete([]byte(object)); got != want {
			t.Errorf("%q is a valid object: got %t, want %t", object, got, want)
		}
	}
	for _, object := range []string{
		` { "a" : 1 , "b" : [ ] } `, `{}`, `{"a":{"b":[{},[1,2],null,true,false]},"c":""}`,
		`{"a":-0,"b":0.10,"c":1e5,"d":-12.5E+07,"e":3e-1}`, `{"\"\\\/\b\f\n\r\t\u00e9\uD83d":"\u0000"}`, `{"a":"é😀","a":[[[0]]]}`,
	} {
		check(object)
		for i := range object {
			check(object[:i])
			check(object[:i] + object[i+1:])
			for k := range alphabet {
				check(object[:i] + alphabet[k:k+1] + object[i:])
				check(object[:i] + alphabet[k:k+1] + object[i+1:])
			}
		}
	}
	for depth := maxDepth - 2; depth <= maxDepth+1; depth++ {
		check(`{"a":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`)
		check(strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth))
	}
}
