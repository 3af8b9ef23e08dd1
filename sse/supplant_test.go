package sse

import (
	"strings"
	"testing"
)

// An observer that rewrites an event sees what the client would, and what it says instead goes out whole, without the
// member that is cut.
func TestRelay_SupplantAfterACut(t *testing.T) {
	for _, tc := range []struct{ name, in, shown, want string }{
		{"nothing cut", `data: {"a":1}`, `{"a":1}`, `data: {"all":1}`},
		{"the member cut", `data: {"a":1,"secret":{"b":2}}`, `{"a":1}`, `data: {"all":1}`},
		{"and a part replaced", `data: {"ids":[1],"secret":2,"c":3}`, `{"ids":null,"c":3}`, `data: {"all":1}`},
		{"of two lines", "data: {\"a\":1,\ndata: \"secret\":2}", "{\"a\":1}", `data: {"all":1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			err := New(&out, nil, Config{Strip: "secret", Observe: func(e Event) Verdict {
				if string(e.Data) == "[DONE]" {
					return Forward
				}
				if at := strings.Index(string(e.Data), "[1]"); at >= 0 {
					e.Replace(at, at+len("[1]"), []byte("null"))
				}
				if got := string(e.Shown()); got != tc.shown {
					t.Errorf("shown %q, want %q", got, tc.shown)
				}
				if e.Supplant([]byte("{\n}")) {
					t.Error("a line end is taken")
				}
				if !e.Supplant([]byte(`{"first":1}`)) || !e.Supplant([]byte(`{"all":1}`)) {
					t.Error("not supplanted")
				}
				return Forward
			}}).Run(strings.NewReader(tc.in + "\n\ndata: [DONE]\n\n"))
			if want := tc.want + "\n\n"; err != nil || !strings.HasPrefix(out.String(), want) {
				t.Errorf("got %q, %v, want %q first", out.String(), err, want)
			}
		})
	}
}
