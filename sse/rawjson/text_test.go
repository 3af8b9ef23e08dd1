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
		if got, ok := Text([]byte(row.raw)); ok != row.ok || ok && got != row.want {
			t.Errorf("Text(%s): got %q, %t, want %q, %t", row.raw, got, ok, row.want, row.ok)
		}
	}
}
