package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// rawMember is a top-level member as the reference reader sees it.
type rawMember struct {
	name string
	raw  []byte
}

var escapedReplacement = regexp.MustCompile(`(?i)\\ufffd`)

// referenceMembers is the reference for scanObject, on encoding/json: the members
// of a body that the scanner must accept, or ok false for one it must refuse.
func referenceMembers(body []byte) (members []rawMember, ok bool) {
	if !utf8.Valid(body) || !json.Valid(body) || referenceDepth(body) > 64 {
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
		members = append(members, rawMember{name, raw})
	}
	return members, true
}

func referenceDepth(body []byte) (deepest int) {
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

// compareMembers checks that body is JSON with exactly these members in this
// order, values byte for byte.
func compareMembers(t *testing.T, body []byte, want []rawMember) {
	t.Helper()
	got, ok := referenceMembers(body)
	if !ok {
		t.Fatalf("rewritten body is not acceptable JSON: %q", body)
	}
	if len(got) != len(want) {
		t.Fatalf("got %d members, want %d\n got %q\nwant %q", len(got), len(want), got, want)
	}
	for i := range got {
		if got[i].name != want[i].name || !bytes.Equal(got[i].raw, want[i].raw) {
			t.Fatalf("member %d: got %s=%s, want %s=%s", i, got[i].name, got[i].raw, want[i].name, want[i].raw)
		}
	}
}

// corpusBytes reads the one []byte of a corpus file in Go's format.
func corpusBytes(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, literal, found := strings.Cut(strings.TrimSpace(string(file)), "\n[]byte(")
	value, err := strconv.Unquote(strings.TrimSuffix(literal, ")"))
	if !found || err != nil {
		t.Fatalf("%s is not a corpus file of one []byte: %v", path, err)
	}
	return []byte(value)
}

func nested(depth int) string {
	return strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1)
}

// checkRefused checks the code of a refusal, and that the reference agrees.
func checkRefused(t *testing.T, name, body, code string) {
	t.Helper()
	_, err := scanObject([]byte(body), nil)
	fault, ok := errors.AsType[*scanError](err)
	if !ok || fault.code != code {
		t.Errorf("%s: got %v, want code %s", name, err, code)
	}
	if _, ok := referenceMembers([]byte(body)); ok {
		t.Errorf("%s: the reference accepts it", name)
	}
}

func TestScanObject_RefusesSyntax(t *testing.T) {
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
		checkRefused(t, row.name, row.body, codeInvalidJSON)
	}
}

func TestScanObject_RefusesWhatParsersReadDifferently(t *testing.T) {
	for _, row := range []struct{ name, body, code string }{
		{"bad UTF-8", "{\"a\":\"\xff\"}", codeInvalidUTF8},
		{"overlong UTF-8", "{\"a\":\"\xc0\xaf\"}", codeInvalidUTF8},
		{"UTF-8 surrogate", "{\"a\":\"\xed\xa0\x80\"}", codeInvalidUTF8},
		{"bad UTF-8 in a key", "{\"\x80\":1}", codeInvalidUTF8},
		{"unpaired surrogate in a key", `{"\ud83d":1}`, codeInvalidUTF8},
		{"low surrogate in a key", `{"\ude00x":1}`, codeInvalidUTF8},
		{"two high surrogates in a key", `{"\ud83d\ud83d":1}`, codeInvalidUTF8},
		{"duplicate", `{"a":1,"b":2,"a":1}`, codeDuplicateKey},
		{"escaped duplicate", `{"model":1,"mod\u0065l":2}`, codeDuplicateKey},
		{"duplicate surrogate pair", `{"\ud83d\ude00":1,"😀":2}`, codeDuplicateKey},
		{"duplicate slash", `{"a/b":1,"a\/b":2}`, codeDuplicateKey},
		{"duplicate empty key", `{"":1,"":2}`, codeDuplicateKey},
	} {
		checkRefused(t, row.name, row.body, row.code)
	}
}

func TestScanObject_RefusesBombs(t *testing.T) {
	var many strings.Builder
	for i := range 257 {
		many.WriteString(`,"` + strconv.Itoa(i) + `":0`)
	}
	for _, row := range []struct{ name, body string }{
		{"65 levels", `{"a":` + nested(65) + `}`},
		{"depth bomb", `{"a":` + strings.Repeat("[", 1<<20)},
		{"object depth bomb", strings.Repeat(`{"a":`, 1<<18)},
		{"257 members", "{" + many.String()[1:] + "}"},
		{"key of 257 bytes", `{"` + strings.Repeat("k", 257) + `":1}`},
	} {
		checkRefused(t, row.name, row.body, codeTooComplex)
	}
}

func TestScanObject_Accepts(t *testing.T) {
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
		`{"a":"\ud83d"}`, // no UTF-8 form, but nobody compares it
		"{\"a\":\"é中😀\u2028\x7f\"}",
		`{"":0,"\u0000":1}`,
		`{"a":123456789012345678901234567890.5e400}`,
		`{"a":` + nested(64) + `}`,
		`{"` + strings.Repeat("k", 256) + `":1}`,
		`{"` + strings.Repeat(`\u006b`, 256) + `":1}`,
		"{" + wide.String()[1:] + "}",
	} {
		o, err := scanObject([]byte(body), nil)
		if err != nil {
			t.Errorf("%.60s: got %v, want it accepted", body, err)
			continue
		}
		want, _ := referenceMembers([]byte(body))
		compareMembers(t, o.rewrite(nil), want)
		if got := string(o.rewrite(nil)); got != body {
			t.Errorf("rewritten without edits: got %q, want %q", got, body)
		}
	}
}

// TestSpecials_EveryByteAtEveryPlace compares the eight-byte search with a plain
// one, after each kind of neighbour a borrow could come from.
func TestSpecials_EveryByteAtEveryPlace(t *testing.T) {
	for _, filler := range []byte{'a', ' ', '!', '#', '[', ']', 0x7f, 0x80, 0xff} {
		for place := range 8 {
			for c := range 256 {
				text := bytes.Repeat([]byte{filler}, 9)
				text[0], text[place+1] = '"', byte(c)
				s := scanner{data: append(text, '"')}
				err := s.str()
				special := c == '"' || c == '\\' || c < 0x20
				reached := s.pos
				if c == '"' && reached != place+2 || !special && (err != nil || reached != 10) || c < 0x20 && (err == nil || reached != place+1) {
					t.Fatalf("byte %#x after %d of %#x: got position %d, error %v", c, place, filler, reached, err)
				}
			}
		}
	}
}

func TestText(t *testing.T) {
	for _, row := range []struct {
		raw, want string
		ok        bool
	}{
		{`"plain"`, "plain", true},
		{`""`, "", true},
		{`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t", true},
		{`"\u0041\u00e9\u4E2d\ud83D\uDe00z"`, "Aé中😀z", true},
		{`"\ufffd"`, "\ufffd", true},
		{`"\ud800"`, "", false},
		{`"\ud800\u0041"`, "", false},
		{`"\udc00\ud800"`, "", false},
		{`"\ud800x\udc00"`, "", false},
		{`7`, "", false},
		{`null`, "", false},
		{``, "", false},
	} {
		if got, ok := text([]byte(row.raw)); ok != row.ok || ok && got != row.want {
			t.Errorf("text(%s): got %q, %t, want %q, %t", row.raw, got, ok, row.want, row.ok)
		}
	}
}

func TestInteger(t *testing.T) {
	for _, row := range []struct {
		raw  string
		want int
		ok   bool
	}{
		{`0`, 0, true},
		{`-7`, -7, true},
		{`1000000000000000001`, 1000000000000000001, true},
		{`9223372036854775808`, math.MaxInt, true},
		{`18446744073709551617`, math.MaxInt, true}, // 1 modulo 2^64
		{`-18446744073709551617`, -math.MaxInt, true},
		{`-0`, 0, false},
		{`1.0`, 0, false},
		{`1e0`, 0, false},
		{`"1"`, 0, false},
		{``, 0, false},
	} {
		if got, ok := integer([]byte(row.raw)); ok != row.ok || ok && got != row.want {
			t.Errorf("integer(%s): got %d, %t, want %d, %t", row.raw, got, ok, row.want, row.ok)
		}
	}
}
