package rawjson

import (
	"bytes"
	"testing"
)

// TestSpecials_EveryByteAtEveryPlace compares the eight-byte search with a plain
// one, after each kind of neighbour a borrow could come from.
func TestSpecials_EveryByteAtEveryPlace(t *testing.T) {
	for _, filler := range []byte{'a', ' ', '!', '#', '[', ']', 0x7f, 0x80, 0xff} {
		for place := range 8 {
			for c := range 256 {
				text := bytes.Repeat([]byte{filler}, 9)
				text[0], text[place+1] = '"', byte(c)
				s := Scanner{Data: append(text, '"')}
				err := s.SkipString()
				special := c == '"' || c == '\\' || c < 0x20
				reached := s.Pos
				if c == '"' && reached != place+2 || !special && (err != nil || reached != 10) || c < 0x20 && (err == nil || reached != place+1) {
					t.Fatalf("byte %#x after %d of %#x: got position %d, error %v", c, place, filler, reached, err)
				}
			}
		}
	}
}

func TestText_DecodesWhatHasAUTF8Form(t *testing.T) {
	for raw, want := range map[string]string{
		`"plain"`: "plain", `""`: "", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u0041\u00e9\u4E2d\ud83D\uDe00z"`: "Aé中😀z", `"\ufffd"`: "\ufffd",
	} {
		if got, ok := Text([]byte(raw)); !ok || got != want {
			t.Errorf("Text(%s): got %q, %t, want %q", raw, got, ok, want)
		}
	}
	for _, raw := range []string{`"\ud800"`, `"\ud800\u0041"`, `"\udc00\ud800"`, `"\ud800x\udc00"`, `7`, `null`, ``} {
		if got, ok := Text([]byte(raw)); ok {
			t.Errorf("Text(%s): got %q, want none", raw, got)
		}
	}
}
