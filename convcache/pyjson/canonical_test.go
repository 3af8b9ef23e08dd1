package pyjson_test

import (
	"strings"
	"testing"

	"carryover/convcache/pyjson"
)

// The rows are what Python 3.11 does: json.dumps(json.loads(s), ensure_ascii=e) == s for both e.
func TestCanonical_IsAsJSONDumpsPrints(t *testing.T) {
	nested := func(n int) string { return `{"a": ` + strings.Repeat("[", n) + "1" + strings.Repeat("]", n) + `}` }
	for s, want := range map[string]bool{
		`{}`: true,
		`{"city": "Paris", "days": 3, "deep": {"a": [1, -2, true, false, null, []], "b": {}}}`: true,
		`{"a": ["x", "y"]}`:                   true,
		`{"": ""}`:                            true,
		`{"b": 1, "a": 2}`:                    true,
		`{"q": "it's <b> & /x"}`:              true,
		`{"q": "\"\\\b\f\n\r\t\u0000\u001f"}`: true,
		`{"q": "\u000b"}`:                     true,
		`{"n": 0}`:                            true,
		`{"n": 9223372036854775807}`:          true,
		`{"n": -9223372036854775808}`:         true,
		`{"n": 0.1}`:                          true,
		`{"n": 1.0}`:                          true,
		`{"n": -0.0}`:                         true,
		`{"n": 0.0001}`:                       true,
		`{"n": 9999999999999998.0}`:           true,
		`{"n": 0.30000000000000004}`:          true,
		`{"n": -122.4194}`:                    true,
		nested(63):                            true,

		``: false, ` `: false, `[]`: false, `1`: false, `"{}"`: false, `null`: false,
		`{} `: false, ` {}`: false, `{}{}`: false, `{ }`: false, `{"a": [ ]}`: false,
		`{"a":1}`: false, `{"a" : 1}`: false, `{"a":  1}`: false, `{"a": 1,"b": 2}`: false, `{"a": 1 , "b": 2}`: false,
		`{"a": 1, }`: false, `{, "a": 1}`: false, `{"a": 1`: false, `{"a": `: false, `{"a"`: false, `{"a`: false, `{`: false,
		`{"a": [1,2]}`: false, `{"a": [1, ]}`: false, `{"a": [1`: false, `{"a": [1, `: false,
		`{a: 1}`: false, `{'a': 1}`: false, `{1: 1}`: false, `{"a": tru}`: false, `{"a": NaN}`: false, `{"a": Infinity}`: false,
		"{\n  \"a\": 1\n}":                false,
		`{"a": 1, "a": 1}`:                false,
		`{"a": {"b": 1, "c": 2, "b": 3}}`: false,
		`{"q": "é"}`:                      false,
		`{"q": "\u00e9"}`:                 false,
		`{"é": 1}`:                        false,
		`{"q": "\ud834\udd1e"}`:           false,
		`{"q": "\/"}`:                     false,
		`{"q": "\u0041"}`:                 false,
		`{"q": "\u0022"}`:                 false,
		`{"q": "\u000a"}`:                 false,
		`{"q": "\u0008"}`:                 false,
		`{"q": "\u000B"}`:                 false,
		`{"q": "\u001F"}`:                 false,
		`{"q": "\u00"}`:                   false,
		`{"q": "\u0`:                      false,
		`{"q": "\u00+1"}`:                 false,
		`{"q": "\U0000"}`:                 false,
		`{"q": "\`:                        false,
		`{"q": "\x"}`:                     false,
		`{"q": "\u007f"}`:                 false,
		"{\"q\": \"\x7f\"}":               false,
		"{\"q\": \"\n\"}":                 false,
		"{\"q\": \"\xff\"}":               false,
		`{"n": -0}`:                       false,
		`{"n": 01}`:                       false,
		`{"n": -}`:                        false,
		`{"n": +1}`:                       false,
		`{"n": 1.}`:                       false,
		`{"n": .5}`:                       false,
		`{"n": 1.10}`:                     false,
		`{"n": 100.00}`:                   false,
		`{"n": 0.00001}`:                  false,
		`{"n": -0.00001}`:                 false,
		`{"n": 10000000000000000.0}`:      false,
		`{"n": -10000000000000000.0}`:     false,
		`{"n": 1e5}`:                      false,
		`{"n": 1e+16}`:                    false, // Python prints it so; refused as rare
		`{"n": 1E400}`:                    false,
		`{"n": 1234567890123456.7}`:       false,
		`{"n": 0.1000000000000000055511151231257827}`: false,
		`{"n": 9223372036854775808}`:                  false, // Python prints it so; refused as rare
		`{"n": ` + strings.Repeat("1", 5000) + `}`:    false, // Python's json.loads refuses above 4300 digits
		nested(64): false,
		strings.Repeat(`{"a": `, 65) + "1" + strings.Repeat("}", 65): false,
	} {
		if got := pyjson.Canonical(s); got != want {
			t.Errorf("%.100q: got %v, want %v", s, got, want)
		}
	}
}
