package sse

import (
	"io"
	"strings"
	"testing"
)

func TestRelay_Supersede(t *testing.T) {
	verdicts := map[byte]Verdict{'h': Hold, 'f': Forward, 's': Supersede, 'd': Drop}
	for _, tc := range []struct{ name, in, want string }{
		{"takes the place of the last held", "data:h1\n\ndata:h2\n\ndata:s\n\n", "data:h1\n\ndata:s\n\n"},
		{"of the only one", "data:f\n\ndata:h\n\ndata:s\n\ndata:f2\n\n", "data:f\n\ndata:s\n\ndata:f2\n\n"},
		{"with a comment behind it", "data:h\n\n:c\n\ndata:s\n\n", ":c\n\ndata:s\n\n"},
		{"with a comment before it", "data:h1\n\n:c\n\ndata:h2\n\ndata:s\n\n", ":c\n\ndata:h1\n\ndata:s\n\n"},
		{"with lines that end in CRLF", "data:h\r\n\r\ndata:s\r\n\r\n", "data:s\r\n\r\n"},
		{"drops behind it change nothing", "data:h\n\ndata:d\n\ndata:s\n\n", "data:s\n\n"},
		{"once", "data:h\n\ndata:s1\n\ndata:s2\n\n", "data:s1\n\n"},
		{"is dropped when nothing is held", "data:f\n\ndata:s\n\ndata:f2\n\n", "data:f\n\ndata:f2\n\n"},
		{"is dropped when what was held has gone out", "data:h\n\ndata:f\n\ndata:s\n\n", "data:h\n\ndata:f\n\n"},
		{"what it would have replaced goes out at the end", "data:h\n\n", "data:h\n\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for size := 1; size <= len(tc.in); size++ { // however the stream is cut into reads
				var out strings.Builder
				rest := tc.in
				src := readFunc(func(p []byte) (int, error) {
					n := copy(p[:min(size, len(p))], rest)
					if rest = rest[n:]; n == 0 {
						return 0, io.EOF
					}
					return n, nil
				})
				err := New(&out, nil, Config{Observe: func(e Event) Verdict { return verdicts[e.Data[0]] }}).Run(src)
				if err != nil || out.String() != tc.want {
					t.Fatalf("in reads of %d: %q, %v; want %q", size, out.String(), err, tc.want)
				}
			}
		})
	}
}

// Edits of the event that supersedes hold.
func TestRelay_SupersedeWithOtherBytes(t *testing.T) {
	var out strings.Builder
	err := New(&out, nil, Config{Observe: func(e Event) Verdict {
		switch e.Data[0] {
		case 'h':
			return Hold
		case 's':
			if !e.Replace(0, len(e.Data), []byte("something much longer than what was there")) {
				t.Error("not replaced")
			}
			return Supersede
		}
		return Forward
	}}).Run(strings.NewReader("data: h\n\ndata: s\n\ndata: f\n\n"))
	if want := "data: something much longer than what was there\n\ndata: f\n\n"; err != nil || out.String() != want {
		t.Errorf("%q, %v; want %q", out.String(), err, want)
	}
}
