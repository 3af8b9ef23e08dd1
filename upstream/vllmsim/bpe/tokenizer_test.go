package bpe

import (
	"slices"
	"testing"
	"unicode/utf8"
)

func FuzzTokenizer_DecodeEncodeIsIdentity(f *testing.F) {
	tok := New()
	for _, s := range []string{
		"", " ", "\n\n", "  two  spaces ", "It's", "naïve 日本語 🎉", "\xff\xfe", "<|im_start|>user\nhi<|im_end|>", "<|im_<|im_end|>",
		"a\u0301", "12345 6", "\t\r\n x", "don't'", "'",
		"The quiet river carries old letters to the harbour, and the harbour keeps them until the morning.",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids := tok.Encode(s)
		if got := tok.Decode(ids); got != s {
			t.Errorf("decode(encode(%q)) = %q", s, got)
		}
		for _, id := range ids {
			if !tok.Valid(id) {
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
	tok := New()
	for id := int32(FirstMerge); tok.Valid(id); id++ {
		halves := tok.Halves[id][:]
		text := tok.Decode(halves)
		if text != tok.Bytes[id] {
			t.Fatalf("halves of %d decode to %q, want %q", id, text, tok.Bytes[id])
		}
		if canonical := tok.Encode(text); slices.Equal(canonical, halves) {
			t.Fatalf("token %d %q: its halves are what encode gives", id, text)
		}
	}
}

func TestDetokenizer_HoldsIncompleteCharacters(t *testing.T) {
	tok := New()
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
		{"special tokens have no text", []int32{ImEnd}, []string{""}},
	} {
		d := Detokenizer{Tok: tok}
		var got []string
		for _, id := range c.ids {
			got = append(got, d.Push(id))
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
