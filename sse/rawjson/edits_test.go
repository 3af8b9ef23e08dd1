package rawjson

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestRewrite_KeepsAllOtherBytes(t *testing.T) {
	edit := func(e *Edits) {
		e.Remove("gone", "absent")
		e.Set("set", []byte("1"))
		e.ReplaceWord("there", "2")
	}
	for object, want := range map[string]string{
		`{}`:      `{"set":1}`,
		` { } `:   ` {"set":1 } `,
		`{"a":1}`: `{"a":1,"set":1}`,
		`{"gone":0 , "s\u0065t" : 9007199254740993 , "a" : "\/" }`: `{"s\u0065t" : 1 , "a" : "\/" }`,
		`{"there":[],"gone":0}`:               `{"there":2,"set":1}`,
		`{"there":null}`:                      `{"there":null,"set":1}`,
		`{"gone":0}`:                          `{"set":1}`,
		`{"a":1,"gone":0,"taken":0}`:          `{"a":1,"set":1}`,
		"{\"taken\":0\t,\n\"set\":0,\"b\":2}": `{"set":1,"b":2}`,
	} {
		o, err := ParseObject([]byte(object))
		if err != nil {
			t.Fatalf("%s: %v", object, err)
		}
		o.Remove("taken")
		var e Edits
		edit(&e)
		if got := string(o.Rewrite(e)); got != want {
			t.Errorf("%s: got %s, want %s", object, got, want)
		}
		e = nil
		edit(&e)
		if got := o.Splice(e); string(got.Bytes()) != want || got.Len() != len(want) {
			t.Errorf("%s: got %q, want %s", object, got, want)
		}
	}
}

// What is long is no copy, and what is short is in few pieces.
func TestSplice_CopiesNothingLong(t *testing.T) {
	long := `"` + strings.Repeat("x", 300) + `"`
	text := []byte(`{"a":1,"b":` + long + `,"c":2,"d":` + long + `,"e":` + long + `}`)
	ids := []byte("[" + strings.Repeat("1,", 300) + "1]")
	o, err := ParseObject(text)
	must(t, err)
	var e Edits
	e.SetWord("c", "3")
	e.Remove("d")
	e.Set("ids", ids)
	e.ReplaceWord("a", "0")
	e.SetWord("f", "null")
	got := o.Splice(e)
	if want := `{"a":0,"b":` + long + `,"c":3,"e":` + long + `,"ids":` + string(ids) + `,"f":null}`; string(got.Bytes()) != want {
		t.Errorf("got %s, want %s", got.Bytes(), want)
	}
	var sizes []int
	for _, piece := range got {
		sizes = append(sizes, len(piece))
	}
	text[bytes.IndexByte(text, 'x')], ids[1] = 'y', '2'
	if want := []int{6, 312, 1, 307, 7, 603, 10}; !slices.Equal(sizes, want) || !bytes.Contains(got.Bytes(), []byte("yxx")) || !bytes.Contains(got.Bytes(), []byte("[2,1")) {
		t.Errorf("got pieces of %d, want %d, the long ones no copies", sizes, want)
	}
}

// Whatever the object and the edits are, both ways to apply them give the same text.
func FuzzSplice(f *testing.F) {
	long := `"` + strings.Repeat("x", 300) + `"`
	f.Add([]byte(`{"a":`+long+` , "b":null,"c":`+long+`,"d":[1]}`), "a", "b", uint16(300))
	f.Add([]byte(`{"a":`+long+`,"a\u0062":1,"c":`+long+`}`), "ab", "e", uint16(1))
	f.Add([]byte(` { } `), "a", "b", uint16(255))
	many := ""
	for i := range 100 { // more than there is room for
		many += fmt.Sprintf(`,"m%d":"%s"`, i, strings.Repeat("y", 10*i))
	}
	f.Add([]byte("{"+many[1:]+"}"), "m1", "m99", uint16(300))
	f.Fuzz(func(t *testing.T, text []byte, one, other string, length uint16) {
		o, err := ParseObject(text)
		if err != nil {
			return
		}
		value := []byte(`"` + strings.Repeat("y", int(length)) + `"`)
		edits := func() (e Edits) {
			e.SetWord(one, "true")
			e.ReplaceWord(other, string(value))
			e.Remove(one + other)
			e.Set(other+one, value)
			e.ReplaceWord(one, "1")
			return e
		}
		got, want := o.Splice(edits()), o.Rewrite(edits())
		if !bytes.Equal(got.Bytes(), want) || got.Len() != len(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
