package rawjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"carryover/sse/rawjson/rawjsontest"
)

// cut removes what FindMember finds.
func cut(object []byte, member string) (rest, value []byte, found bool) {
	value, cuts := FindMember(object, member, nil)
	kept := 0
	for _, c := range cuts {
		rest = append(rest, object[kept:c.From]...)
		kept = c.To
	}
	return append(rest, object[kept:]...), value, len(cuts) > 0
}

// FuzzCut compares with encoding/json. Which spaces and commas go with the member, FuzzRelay of package sse says.
func FuzzCut(f *testing.F) {
	for _, object := range []string{
		`{"kv":1}`, ` { "kv" : { "a" : "}" } } `, `{"kv":1,"a":2}`, `{"a":2,"kv":[1,"]",{}]}`, `{"a":2, "kv": -1.5e3 , "b":3}`, `{"kv":1,"kv":true}`, `{"kv":1,"a":0,"kv":null,"b":0,"kv":false}`, `{"\u006bv":"x\\","\"":1}`, "{\"a\":1e9\t,\n\"kv\":{}\r}",
		``, ` `, `{`, `{}`, `null`, `"kv"`, `[{"kv":1}]`, `{"a":{"kv":1}}`, `{"a":"\"kv\":1"}`, `{"KV":1}`, `{"kv ":1}`, `{"\u006bx":1}`,
		`{"kv":1`, `{"kv":1}}`, `{"kv":1,}`, `{'kv':1}`, `{"kv":NaN}`, `{"kv":1} x`, "{\"kv\":\"a\nb\"}", `{kv:1}`,
	} {
		f.Add([]byte(object), "kv")
	}
	f.Fuzz(func(t *testing.T, object []byte, member string) {
		if !utf8.ValidString(member) || strings.ContainsRune(member, utf8.RuneError) {
			return // encoding/json reads invalid UTF-8 as U+FFFD, Cut compares names as they are
		}
		rest, value, found := cut(object, member)
		if rawjsontest.Depth(object) > MaxDepth && !json.Valid(object) {
			return // what is nested too deep is not checked
		}
		before, ok := rawjsontest.DecodeObject(object)
		wantValue, want := before[member]
		if !ok || !want {
			if found || value != nil || string(rest) != string(object) {
				t.Fatalf("Cut(%q, %q) = %q, %q, %t; want it unchanged", object, member, rest, value, found)
			}
			return
		}
		after, ok := rawjsontest.DecodeObject(rest)
		delete(before, member)
		if !found || !ok || !reflect.DeepEqual(after, before) {
			t.Fatalf("Cut(%q, %q): rest %q, found %t; want an object equal to %v", object, member, rest, found, before)
		}
		var got any
		if err := json.Unmarshal(value, &got); err != nil {
			t.Fatalf("Cut(%q, %q): value %q: %v", object, member, value, err)
		}
		if decoded, _ := rawjsontest.DecodeObject([]byte(`{"v":` + string(value) + `}`)); !reflect.DeepEqual(decoded["v"], wantValue) {
			t.Fatalf("Cut(%q, %q): value %q, want %v", object, member, value, wantValue)
		}
	})
}
