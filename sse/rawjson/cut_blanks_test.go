package rawjson

import (
	"strings"
	"testing"
)

// blanked is a text that comes in pieces of n bytes, with null in place of what Blanks finds.
func blanked(text string, n int) (out string, last string) {
	var written strings.Builder
	to := NewNuller(&written, func() error { return nil }, []string{"params", "ids"})
	for len(text) > 0 {
		piece := text[:min(n, len(text))]
		text = text[len(piece):]
		_, _ = to.Write([]byte(piece)) // the writer does not fail
	}
	return written.String(), string(to.First)
}

func TestBlanks_InPiecesOfAnySize(t *testing.T) {
	for text, want := range map[string]struct{ out, last string }{
		`{"a":1}`: {`{"a":1}`, ""},
		`{"params":{"a":[1,{"params":2}]},"b":"params"}`:             {`{"params":null,"b":"params"}`, `{"a":[1,{"params":2}]}`},
		`{"a":"\"params\":1","params":"},\"{"}`:                      {`{"a":"\"params\":1","params":null}`, `"},\"{"`},
		`{"choices":[{"ids":[1,2],"message":{"ids":3}}],"params":4}`: {`{"choices":[{"ids":null,"message":{"ids":3}}],"params":null}`, "4"},
		`{"params":null}`:              {`{"params":null}`, "null"},
		`{"params": 1 , "params":[2]}`: {`{"params":null, "params":null}`, "[2]"},
		"event: x\ndata: {\"response\":{\"params\":{},\"b\":[{\"params\":7}]}}\n\n": {"event: x\ndata: {\"response\":{\"params\":null,\"b\":[{\"params\":7}]}}\n\n", "{}"},
		`{"paramss":1,"param":2,"\u0070arams":3,"x":["params",[{"params":4}]]}`:     {`{"paramss":1,"param":2,"\u0070arams":3,"x":["params",[{"params":4}]]}`, ""},
		`{"a\\":1,"params":"\\","c":2}`:                                             {`{"a\\":1,"params":null,"c":2}`, `"\\"`},
	} {
		for n := 1; n <= len(text); n++ {
			out, last := blanked(text, n)
			if out != want.out || strings.TrimSpace(last) != want.last {
				t.Errorf("%s in pieces of %d:\ngot  %s, %s\nwant %s, %s", text, n, out, last, want.out, want.last)
			}
		}
	}
}

// No more of a value is kept than parameters may have.
func TestBlanks_KeepALimitedValue(t *testing.T) {
	text := `{"params":"` + strings.Repeat("x", 3*maxBlank) + `","b":1}`
	for _, n := range []int{1 << 10, len(text)} {
		if out, last := blanked(text, n); out != `{"params":null,"b":1}` || len(last) != maxBlank {
			t.Errorf("in pieces of %d: %d bytes of text, %d of the value", n, len(out), len(last))
		}
	}
}

// The size of pieces changes nothing, and what is found is within its piece.
func FuzzBlanks(f *testing.F) {
	f.Add(`{"a":"\\","params":{"b":[1]}}`, 3)
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = max(1, n)
		out, last := blanked(text, n)
		if whole, kept := blanked(text, max(1, len(text))); out != whole || last != kept {
			t.Errorf("%q in pieces of %d: %q, %q, else %q, %q", text, n, out, last, whole, kept)
		}
	})
}
