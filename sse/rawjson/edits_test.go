package rawjson_test

import (
	"testing"

	"carryover/sse/rawjson"
)

func TestRewrite_KeepsAllOtherBytes(t *testing.T) {
	edit := func(e *rawjson.Edits) {
		e.Remove("gone", "absent")
		e.Set("set", []byte("1"))
		e.Replace("there", []byte("2"))
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
		o, err := rawjson.ParseObject([]byte(object))
		if err != nil {
			t.Fatalf("%s: %v", object, err)
		}
		o.Remove("taken")
		var e rawjson.Edits
		edit(&e)
		if got := string(o.Rewrite(e)); got != want {
			t.Errorf("%s: got %s, want %s", object, got, want)
		}
	}
}

func TestObject_Readers(t *testing.T) {
	const text = `{"a\u0062":"x","null":null,"c":[1]}`
	o, err := rawjson.ParseObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if string(o.Get("ab")) != `"x"` || o.Get("absent") != nil || !o.Has("null") || o.Has("absent") || o.Size() != len(text) {
		t.Errorf("got ab %s, absent %s, null %t, absent %t, size %d", o.Get("ab"), o.Get("absent"), o.Has("null"), o.Has("absent"), o.Size())
	}
	o.Remove("ab")
	o.Remove("absent")
	all := ""
	for name, value := range o.Members() {
		all += string(name) + "=" + string(value) + " "
	}
	if all != "null=null c=[1] " || o.Has("ab") {
		t.Errorf("without ab: got %s, ab %t", all, o.Has("ab"))
	}
	for range o.Members() {
		break
	}
}
