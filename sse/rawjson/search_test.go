package rawjson_test

import (
	"testing"

	"carryover/sse/rawjson"
)

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
		if got := rawjson.MayHave([]byte(row.data), "usage", "{"); got != row.want {
			t.Errorf("MayHave(%s) = %t, want %t", row.data, got, row.want)
		}
	}
}

func TestBegins_IgnoresWhiteSpace(t *testing.T) {
	for data, want := range map[string]bool{
		`{"error":1}`: true, " { \"error\"\r\n:": true, `{"error"`: false, `{"errors":1}`: false, `[{"error":1}]`: false, "": false,
	} {
		if got := rawjson.Begins([]byte(data), `{"error":`); got != want {
			t.Errorf("Begins(%s) = %t, want %t", data, got, want)
		}
	}
}

func TestEachKey_VisitsEveryDepth(t *testing.T) {
	const text = `[{"a":"b","c\u0064" : {"\"":[{"e":"\":"}]},"\ud800":1},"f", "g"]`
	var names, rests string
	rawjson.EachKey([]byte(text), func(name, rest []byte) bool {
		names += string(name) + " "
		rests += string(rest[:1])
		return true
	})
	if names != `a cd " e ` || rests != `"{["` {
		t.Errorf("got names %s, values %s", names, rests)
	}
	rawjson.EachKey([]byte(text), func(name, _ []byte) bool {
		if string(name) != "a" {
			t.Errorf("visited %s after the end", name)
		}
		return false
	})
	rawjson.EachKey([]byte(`{"unfinished`), func(name, _ []byte) bool {
		t.Errorf("visited %s", name)
		return true
	})
}
