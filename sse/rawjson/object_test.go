package rawjson

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"carryover/sse/rawjson/rawjsontest"
)

// checkRefused checks the code of a refusal, and that the reference agrees.
func checkRefused(t *testing.T, body, code string) {
	t.Helper()
	_, err := ParseObject([]byte(body))
	fault, ok := errors.AsType[*Error](err)
	if !ok || fault.Code != code {
		t.Errorf("%.80q: got %v, want code %s", body, err, code)
	}
	if _, ok := rawjsontest.Members([]byte(body)); ok {
		t.Errorf("%.80q: the reference accepts it", body)
	}
}

func TestParseObject_RefusesSyntax(t *testing.T) {
	for _, body := range []string{
		``,                         // empty
		` `,                        // white space
		`[]`,                       // array
		`null`,                     // null
		"\xef\xbb\xbf{}",           // byte order mark
		"{\x00}\x00",               // UTF-16
		`{} x`,                     // trailing bytes
		`{}{}`,                     // second object
		"{}\x00",                   // trailing NUL
		`{"a":1`,                   // unfinished
		`{"a":"b`,                  // unfinished string
		`{"a":"0123456789abcdef`,   // unfinished long string
		`{"a":"\`,                  // unfinished escape
		`{"a":"\u00`,               // unfinished hex
		`{"a":"\u00g0"}`,           // bad hex
		`{"a":"\x"}`,               // bad escape
		"{\"a\":\"12345678\x1f\"}", // control character
		"{\"a\n\":1}",              // raw newline in a key
		`{"a" 1}`,                  // no colon
		`{1:1}`,                    // no key
		`{'a':1}`,                  // single quotes
		`{"a":}`,                   // no value
		`{"a":1,}`,                 // trailing comma
		`{,"a":1}`,                 // leading comma
		`{"a":[1}}`,                // wrong closing
		`{"a":[1,]}`,               // array comma
		`{"a":1/**/}`,              // comment
		"{\v}",                     // vertical tab
		`{"a":NaN}`,                // NaN
		`{"a":-Infinity}`,          // Infinity
		`{"a":True}`,               // capital literal
		`{"a":tru}`,                // short literal
		`{"a":01}`,                 // leading zero
		`{"a":+1}`,                 // plus
		`{"a":.5}`,                 // no integer part
		`{"a":1.}`,                 // no fraction
		`{"a":1e}`,                 // no exponent
		`{"a":1e+}`,                // signed no exponent
		`{"a":-}`,                  // minus
		`{"a":0x1}`,                // hex number
	} {
		checkRefused(t, body, CodeInvalidJSON)
	}
}

func TestParseObject_RefusesWhatParsersReadDifferently(t *testing.T) {
	for _, row := range []struct{ body, code string }{
		{"{\"a\":\"\xff\"}", CodeInvalidUTF8},            // bad UTF-8
		{"{\"a\":\"\xc0\xaf\"}", CodeInvalidUTF8},        // overlong UTF-8
		{"{\"a\":\"\xed\xa0\x80\"}", CodeInvalidUTF8},    // UTF-8 surrogate
		{"{\"\x80\":1}", CodeInvalidUTF8},                // bad UTF-8 in a key
		{`{"\ud83d":1}`, CodeInvalidUTF8},                // unpaired surrogate in a key
		{`{"\ude00x":1}`, CodeInvalidUTF8},               // low surrogate in a key
		{`{"\ud83d\ud83d":1}`, CodeInvalidUTF8},          // two high surrogates in a key
		{`{"a":1,"b":2,"a":1}`, CodeDuplicateKey},        // duplicate
		{`{"model":1,"mod\u0065l":2}`, CodeDuplicateKey}, // escaped duplicate
		{`{"\ud83d\ude00":1,"😀":2}`, CodeDuplicateKey},   // duplicate surrogate pair
		{`{"a/b":1,"a\/b":2}`, CodeDuplicateKey},         // duplicate slash
		{`{"":1,"":2}`, CodeDuplicateKey},                // duplicate empty key
	} {
		checkRefused(t, row.body, row.code)
	}
}

func TestParseObject_RefusesBombs(t *testing.T) {
	var many strings.Builder
	for i := range 257 {
		many.WriteString(`,"` + strconv.Itoa(i) + `":0`)
	}
	for _, body := range []string{
		`{"a":` + rawjsontest.Nested(64) + `}`,   // 65 levels
		`{"a":` + strings.Repeat("[", 1<<20),     // depth bomb
		strings.Repeat(`{"a":`, 1<<18),           // object depth bomb
		"{" + many.String()[1:] + "}",            // 257 members
		`{"` + strings.Repeat("k", 257) + `":1}`, // key of 257 bytes
	} {
		checkRefused(t, body, CodeTooComplex)
	}
}

// What they accept is FuzzValid's to compare.
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
		if _, err := ParseObject([]byte(body)); err != nil {
			t.Errorf("%.60s: got %v, want it accepted", body, err)
		}
		checkValid(t, []byte(body))
	}
}
