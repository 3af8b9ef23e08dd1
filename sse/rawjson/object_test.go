package rawjson_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"carryover/sse/rawjson"
	"carryover/sse/rawjson/rawjsontest"
)

// checkRefused checks the code of a refusal, and that the reference agrees.
func checkRefused(t *testing.T, name, body, code string) {
	t.Helper()
	_, err := rawjson.ParseObject([]byte(body))
	fault, ok := errors.AsType[*rawjson.Error](err)
	if !ok || fault.Code != code {
		t.Errorf("%s: got %v, want code %s", name, err, code)
	}
	if _, ok := rawjsontest.Members([]byte(body)); ok {
		t.Errorf("%s: the reference accepts it", name)
	}
}

func TestParseObject_RefusesSyntax(t *testing.T) {
	for _, row := range []struct{ name, body string }{
		{"empty", ``},
		{"white space", ` `},
		{"array", `[]`},
		{"null", `null`},
		{"byte order mark", "\xef\xbb\xbf{}"},
		{"UTF-16", "{\x00}\x00"},
		{"trailing bytes", `{} x`},
		{"second object", `{}{}`},
		{"trailing NUL", "{}\x00"},
		{"unfinished", `{"a":1`},
		{"unfinished string", `{"a":"b`},
		{"unfinished long string", `{"a":"0123456789abcdef`},
		{"unfinished escape", `{"a":"\`},
		{"unfinished hex", `{"a":"\u00`},
		{"bad hex", `{"a":"\u00g0"}`},
		{"bad escape", `{"a":"\x"}`},
		{"control character", "{\"a\":\"12345678\x1f\"}"},
		{"raw newline in a key", "{\"a\n\":1}"},
		{"no colon", `{"a" 1}`},
		{"no key", `{1:1}`},
		{"single quotes", `{'a':1}`},
		{"no value", `{"a":}`},
		{"trailing comma", `{"a":1,}`},
		{"leading comma", `{,"a":1}`},
		{"wrong closing", `{"a":[1}}`},
		{"array comma", `{"a":[1,]}`},
		{"comment", `{"a":1/**/}`},
		{"vertical tab", "{\v}"},
		{"NaN", `{"a":NaN}`},
		{"Infinity", `{"a":-Infinity}`},
		{"capital literal", `{"a":True}`},
		{"short literal", `{"a":tru}`},
		{"leading zero", `{"a":01}`},
		{"plus", `{"a":+1}`},
		{"no integer part", `{"a":.5}`},
		{"no fraction", `{"a":1.}`},
		{"no exponent", `{"a":1e}`},
		{"signed no exponent", `{"a":1e+}`},
		{"minus", `{"a":-}`},
		{"hex number", `{"a":0x1}`},
	} {
		checkRefused(t, row.name, row.body, rawjson.CodeInvalidJSON)
	}
}

func TestParseObject_RefusesWhatParsersReadDifferently(t *testing.T) {
	for _, row := range []struct{ name, body, code string }{
		{"bad UTF-8", "{\"a\":\"\xff\"}", rawjson.CodeInvalidUTF8},
		{"overlong UTF-8", "{\"a\":\"\xc0\xaf\"}", rawjson.CodeInvalidUTF8},
		{"UTF-8 surrogate", "{\"a\":\"\xed\xa0\x80\"}", rawjson.CodeInvalidUTF8},
		{"bad UTF-8 in a key", "{\"\x80\":1}", rawjson.CodeInvalidUTF8},
		{"unpaired surrogate in a key", `{"\ud83d":1}`, rawjson.CodeInvalidUTF8},
		{"low surrogate in a key", `{"\ude00x":1}`, rawjson.CodeInvalidUTF8},
		{"two high surrogates in a key", `{"\ud83d\ud83d":1}`, rawjson.CodeInvalidUTF8},
		{"duplicate", `{"a":1,"b":2,"a":1}`, rawjson.CodeDuplicateKey},
		{"escaped duplicate", `{"model":1,"mod\u0065l":2}`, rawjson.CodeDuplicateKey},
		{"duplicate surrogate pair", `{"\ud83d\ude00":1,"😀":2}`, rawjson.CodeDuplicateKey},
		{"duplicate slash", `{"a/b":1,"a\/b":2}`, rawjson.CodeDuplicateKey},
		{"duplicate empty key", `{"":1,"":2}`, rawjson.CodeDuplicateKey},
	} {
		checkRefused(t, row.name, row.body, row.code)
	}
}

func TestParseObject_RefusesBombs(t *testing.T) {
	var many strings.Builder
	for i := range 257 {
		many.WriteString(`,"` + strconv.Itoa(i) + `":0`)
	}
	for _, row := range []struct{ name, body string }{
		{"65 levels", `{"a":` + rawjsontest.Nested(64) + `}`},
		{"depth bomb", `{"a":` + strings.Repeat("[", 1<<20)},
		{"object depth bomb", strings.Repeat(`{"a":`, 1<<18)},
		{"257 members", "{" + many.String()[1:] + "}"},
		{"key of 257 bytes", `{"` + strings.Repeat("k", 257) + `":1}`},
	} {
		checkRefused(t, row.name, row.body, rawjson.CodeTooComplex)
	}
}

func TestParseObject_Accepts(t *testing.T) {
	var wide strings.Builder
	for i := range 256 {
		wide.WriteString(`,"` + strconv.Itoa(i) + `":0`)
	}
	for _, body := range []string{
		`{}`,
		" {\t}\r\n",
		` { "a" : 1 , "b" : [ ] , "c" : { } } `,
		`{"a":[[],{},[{"a":[1,2.5,-0,0e0,1E-7,1e+99,true,false,null]}]]}`,
		`{"a":{"x":1,"x":2}}`, // only top-level duplicates are the proxy's business
		`{"a":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}`,
		`{"a":"\ud83d"}`, // no UTF-8 form, but it is not compared
		"{\"a\":\"é中😀\u2028\x7f\"}",
		`{"":0,"\u0000":1}`,
		`{"a":123456789012345678901234567890.5e400}`,
		`{"a":` + rawjsontest.Nested(63) + `}`,
		`{"` + strings.Repeat("k", 256) + `":1}`,
		`{"` + strings.Repeat(`\u006b`, 256) + `":1}`,
		"{" + wide.String()[1:] + "}",
	} {
		o, err := rawjson.ParseObject([]byte(body))
		if err != nil {
			t.Errorf("%.60s: got %v, want it accepted", body, err)
			continue
		}
		want, _ := rawjsontest.Members([]byte(body))
		rawjsontest.Compare(t, o.Rewrite(nil), want)
		if got := string(o.Rewrite(nil)); got != body {
			t.Errorf("rewritten without edits: got %q, want %q", got, body)
		}
	}
}
