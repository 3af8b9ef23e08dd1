package rawjson

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"carryover/sse/rawjson/rawjsontest"
)

func TestGet_FollowsThePath(t *testing.T) {
	deep := rawjsontest.Nested(5000)
	for _, row := range []struct {
		raw, path, want string
	}{
		{`{"a":1}`, "a", "1"},
		{` { "a" : { "b" : [ 1 ] } } `, "a b", "[ 1 ]"},
		{`{"a":{"b":1},"a":{"b":2}}`, "a b", "2"}, // Python takes the last, gjson the first
		{`{"a":{"b":1},"a":null}`, "a b", ""},
		{`{"\u0061":null}`, "a", "null"},
		{`{"a.b":1,"*":2}`, "a b", ""},
		{`{"a":[{"b":1}]}`, "a b", ""},
		{`{"a":"b"}`, "a b", ""},
		{`{"x":` + deep + `,"a":` + deep + `}`, "a", deep},
		{`{"a":1,"b":2`, "a", "1"}, // Valid tells whether the text ends well
		{`{"a":1,"a":tru}`, "a", "1"},
		{`{"a":{"b":1}`, "a b", "1"},
		{`{"a":{"b":1`, "a b", ""},
		{`{"a":1}{"a":2}`, "a", "1"},
		{`[{"a":1}]`, "a", ""},
		{`null`, "a", ""},
		{``, "a", ""},
		{`"text"`, "", `"text"`},
	} {
		if got := Get([]byte(row.raw), strings.Fields(row.path)...); string(got) != row.want || (got == nil) != (row.want == "") {
			t.Errorf("Get(%.60q, %s) = %.60q, want %.60q", row.raw, row.path, got, row.want)
		}
	}
}

func TestGet_TellsKinds(t *testing.T) {
	raw := []byte(`{"text":"\u00e9","half":"\ud800","n":12,"fraction":1.0,"null":null,"in":{"n":-1}}`)
	if got := GetText(raw, "text") + GetText(raw, "half") + GetText(raw, "n") + GetText(raw, "none"); got != "é" {
		t.Errorf("the texts are %q, want é", got)
	}
	for path, want := range map[string]int{"n": 12, "in n": -1, "fraction": 0, "text": 0, "null": 0, "none": 0} {
		if n, ok := GetInt(raw, strings.Fields(path)...); ok != (want != 0) || ok && n != want {
			t.Errorf("GetInt of %s: %d, %t, want %d", path, n, ok, want)
		}
	}
	if Kind(nil) != 0 || Kind(Get(raw, "in")) != '{' || Kind(Get(raw, "null")) != 'n' {
		t.Error("a kind is not the first byte of the value")
	}
}

func TestGet_AllocatesNothing(t *testing.T) {
	raw := []byte(`{"a":{"b":null,"n":3},"l":[1,2]}`)
	if n := testing.AllocsPerRun(100, func() {
		n, ok := GetInt(raw, "a", "n")
		if first, more := First(Get(raw, "l")); !ok || n != 3 || !more || string(first) != "1" || Get(raw, "a", "b", "c") != nil {
			t.Error("wrong values")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestElements_OfArraysOnly(t *testing.T) {
	for raw, want := range map[string]string{
		`[1, "a,]" ,{"b":[2]}]`: `1|"a,]"|{"b":[2]}`, `[null]`: "null", `[ ]`: "", `{"a":1}`: "", `null`: "", "": "",
	} {
		var got []string
		for element := range Elements([]byte(raw)) {
			got = append(got, string(element))
		}
		first, more := First([]byte(raw))
		if strings.Join(got, "|") != want || more != (len(got) > 1) || (first == nil) != (len(got) == 0) || first != nil && string(first) != got[0] {
			t.Errorf("the elements of %s are %q, the first %q, more %t", raw, got, first, more)
		}
	}
}

func FuzzGet(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":2}],"a":[3]}`), "a")
	f.Fuzz(func(t *testing.T, raw []byte, name string) {
		got := Get(raw, name)
		object, ok := rawjsontest.DecodeObject(raw)
		if !ok || !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError) {
			return // encoding/json reads invalid UTF-8 as U+FFFD, Get compares names as they are
		}
		want, present := object[name]
		decoded, _ := rawjsontest.DecodeObject(slices.Concat([]byte(`{"v":`), got, []byte(`}`)))
		if present != (got != nil) || present && !reflect.DeepEqual(decoded["v"], want) {
			t.Fatalf("Get(%q, %q) = %q, want %v", raw, name, got, want)
		}
		list, _ := want.([]any)
		if array, ok := decoded["v"].([]any); ok {
			n := 0
			for element := range Elements(got) {
				if n++; n > len(list) || !json.Valid(element) {
					t.Fatalf("the elements of %q: %q is number %d of %v", got, element, n, array)
				}
			}
			if n != len(list) {
				t.Fatalf("the elements of %q: %d, want %d", got, n, len(list))
			}
		}
	})
}

func TestMayHave_SeesAMemberThatIsNotNull(t *testing.T) {
	for _, row := range []struct {
		data string
		want bool
	}{
		{`{"usage":{}}`, true},
		{"{\"usage\" \n:\t{\"a\":1}}", true},
		{`{"usage":null,"usage":{}}`, true},
		{`{"x":"usage","usage" : {`, true},
		{`{"usage":null}`, false},
		{`{"usage"}`, false},
		{`{"us\u0061ge":{}}`, false},
		{`usage":`, false},
		{``, false},
	} {
		if got := MayHave([]byte(row.data), "usage", "{"); got != row.want {
			t.Errorf("MayHave(%s) = %t, want %t", row.data, got, row.want)
		}
	}
}

func TestBegins_IgnoresWhiteSpace(t *testing.T) {
	for data, want := range map[string]bool{
		`{"error":1}`: true, " { \"error\"\r\n:": true, `{"error"`: false, `{"errors":1}`: false, `[{"error":1}]`: false, "": false,
	} {
		if got := Begins([]byte(data), `{"error":`); got != want {
			t.Errorf("Begins(%s) = %t, want %t", data, got, want)
		}
	}
}

func TestEachKey_VisitsEveryDepth(t *testing.T) {
	const text = `[{"a":"b","c\u0064" : {"\"":[{"e":"\":"}]},"\ud800":1},"f", "g"]`
	var names, rests string
	EachKey([]byte(text), func(name, rest []byte) bool {
		names += string(name) + " "
		rests += string(rest[:1])
		return true
	})
	if names != `a cd " e ` || rests != `"{["` {
		t.Errorf("got names %s, values %s", names, rests)
	}
	EachKey([]byte(text), func(name, _ []byte) bool {
		if string(name) != "a" {
			t.Errorf("visited %s after the end", name)
		}
		return false
	})
	EachKey([]byte(`{"unfinished`), func(name, _ []byte) bool {
		t.Errorf("visited %s", name)
		return true
	})
}
