package vllmsim

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func testTokenizer(tb testing.TB) *tokenizer {
	tb.Helper()
	tok, err := newTokenizer(vocabulary)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

func FuzzTokenizer_DecodeEncodeIsIdentity(f *testing.F) {
	tok := testTokenizer(f)
	for _, s := range []string{
		"", " ", "\n\n", "  two  spaces ", "It's", "naïve 日本語 🎉", "\xff\xfe", "<|im_start|>user\nhi<|im_end|>", "<|im_<|im_end|>",
		"a\u0301", "12345 6", "\t\r\n x", "don't'", "'", longText,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids := tok.encode(s)
		if got := tok.decode(ids); got != s {
			t.Errorf("decode(encode(%q)) = %q", s, got)
		}
		for _, id := range ids {
			if !tok.valid(id) {
				t.Errorf("encode(%q) has id %d outside the vocabulary", s, id)
			}
		}
	})
}

func TestTokenizer_PretokensFollowGPT2(t *testing.T) {
	for text, want := range map[string][]string{
		"Hello world":      {"Hello", " world"},
		"it's 42 times!!":  {"it", "'s", " 42", " times", "!!"},
		"a  b":             {"a", " ", " b"},
		"a \n b":           {"a", " \n", " b"},
		"line\n\nnext":     {"line", "\n", "\n", "next"},
		"tail  ":           {"tail", "  "},
		"{\"a\": 1}":       {"{\"", "a", "\":", " 1", "}"},
		"they'll've":       {"they", "'ll", "'ve"},
		"日本 x":             {"日本", " x"},
		" \u00a0nbsp":      {" ", "\u00a0", "nbsp"},
		"under_score-dash": {"under", "_", "score", "-", "dash"},
	} {
		var got []string
		for rest := text; rest != ""; {
			n := pretoken(rest)
			got = append(got, rest[:n])
			rest = rest[n:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("pre-tokens of %q: %q, want %q", text, got, want)
		}
	}
}

func TestTokenizer_SplitTokenHasSameTextAndOtherIDs(t *testing.T) {
	tok := testTokenizer(t)
	for id := int32(firstMerge); tok.valid(id); id++ {
		halves := tok.halves[id][:]
		text := tok.decode(halves)
		if text != tok.bytes[id] {
			t.Fatalf("halves of %d decode to %q, want %q", id, text, tok.bytes[id])
		}
		if canonical := tok.encode(text); slices.Equal(canonical, halves) {
			t.Fatalf("token %d %q: its halves are what encode gives", id, text)
		}
	}
}

func TestTokenizer_RejectsBrokenVocabulary(t *testing.T) {
	for _, merges := range []string{"x y\n", "8\n", "8 5000\n", "-1 9\n", "1 9\n"} {
		if _, err := newTokenizer(merges); err == nil {
			t.Errorf("vocabulary %q: no error", merges)
		}
	}
}

func TestDetokenizer_HoldsIncompleteCharacters(t *testing.T) {
	tok := testTokenizer(t)
	bytesOf := func(s string) (ids []int32) {
		for _, b := range []byte(s) {
			ids = append(ids, firstByteToken+int32(b))
		}
		return ids
	}
	for _, c := range []struct {
		name string
		ids  []int32
		want []string
	}{
		{"one byte at a time", bytesOf("é!"), []string{"", "é", "!"}},
		{"never completed", bytesOf("\xe2\x82"), []string{"", ""}},
		{"broken off by another character", bytesOf("\xe2\x82A"), []string{"", "", "\uFFFDA"}},
		{"each stray byte is one replacement", bytesOf("\x80\x80A"), []string{"", "", "\uFFFD\uFFFDA"}},
		{"special tokens have no text", []int32{tokenImEnd}, []string{""}},
	} {
		d := detokenizer{tok: tok}
		var got []string
		for _, id := range c.ids {
			got = append(got, d.push(id))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzReplaceInvalid_IsValidAndKeepsText(f *testing.F) {
	for _, s := range []string{"plain", "\xff", "\xe2\x82", "é\xc3", "\xf0\x9f\x8e", "\xed\xa0\x80"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := replaceInvalid(b)
		if !utf8.ValidString(got) {
			t.Errorf("replaceInvalid(%q) = %q, not valid UTF-8", b, got)
		}
		if utf8.Valid(b) && got != string(b) {
			t.Errorf("replaceInvalid(%q) = %q, want it unchanged", b, got)
		}
	})
}

func FuzzPythonJSON_IsStable(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[true,null,"é\n\u0001"]}`, `1e3`, `-0.0`, `1.50`, `[]`, `{}`, `"\ud800"`, `1e400`, `[1,]`, `1 2`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once, err := pythonJSON([]byte(s))
		if err != nil {
			return
		}
		twice, err := pythonJSON([]byte(once))
		if err != nil || once != twice {
			t.Errorf("pythonJSON(%q) = %q, again %q, %v", s, once, twice, err)
		}
	})
}

func TestPythonJSON_WritesLikeJSONDumps(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":{"x":[1,2],"y":"é"}}`:      `{"b": 1, "a": {"x": [1, 2], "y": "é"}}`,
		`{"f":1.50,"e":1e3,"s":1e-7,"l":1e22}`: `{"f": 1.5, "e": 1000.0, "s": 1e-07, "l": 1e+22}`,
		`"\u00e9\u0001\"\\\/\n"`:               `"é\u0001\"\\/\n"`,
		` [ ] `:                                `[]`,
	} {
		if got, err := pythonJSON([]byte(in)); got != want || err != nil {
			t.Errorf("pythonJSON(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{``, `{`, `[1,]`, `1 2`, strings.Repeat("[", 3)} {
		if got, err := pythonJSON([]byte(in)); err == nil {
			t.Errorf("pythonJSON(%s) = %s, want an error", in, got)
		}
	}
}
