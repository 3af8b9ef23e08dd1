package suggest_test

import (
	"slices"
	"strings"
	"testing"

	"carryover/server/suggest"
)

func TestNearest(t *testing.T) {
	flags := []string{"port", "host", "prefill", "decode", "idle-timeout", "first-byte-timeout", "max-streams", "hand-back", "hand-back-after", "redis-url", "ttl"}
	for _, row := range []struct{ word, want string }{
		{"prot", "port"}, {"prefil", "prefill"}, {"perfill", "prefill"}, {"Prefill", "prefill"}, {"decoder", "decode"},
		{"max_streams", "max-streams"}, {"max-stream", "max-streams"}, {"timeout-idle", "idle-timeout"}, {"handback", "hand-back"},
		{"hand-back-afer", "hand-back-after"}, {"tll", "ttl"}, {"hosts", "host"}, {"redis", ""}, {"frobnicate", ""}, {"x", ""}, {"", ""},
		{strings.Repeat("port", 100), ""},
	} {
		if got := suggest.Nearest(row.word, flags); got != row.want {
			t.Errorf("%q: got %q, want %q", row.word, got, row.want)
		}
	}
	if got := suggest.Nearest("abcd", []string{"abce", "abcf"}); got != "abce" {
		t.Errorf("of equally near ones %q is taken, want the first", got)
	}
}

func TestDidYouMean(t *testing.T) {
	flag := func(name string) string { return "--" + name }
	if got := suggest.DidYouMean("prot", []string{"port"}, flag); got != "; did you mean --port?" {
		t.Errorf("got %q", got)
	}
	if got := suggest.DidYouMean("nothing", []string{"port"}, flag); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
}

// Words come from clients and operators: any bytes have an answer, one of the candidates or none, and a candidate itself is nearest to itself.
func FuzzNearest(f *testing.F) {
	for _, seed := range [][2]string{{"prot", "port"}, {"", "a"}, {"max_streams", "max-streams"}, {"\xff\xfe", "\xfe\xff"}, {"--", "__"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, word, candidate string) {
		candidates := []string{"prefill", candidate}
		if got := suggest.Nearest(word, candidates); got != "" && !slices.Contains(candidates, got) {
			t.Errorf("got %q, which is no candidate", got)
		}
		if n := len(candidate); n >= 2 && n <= 64 && candidate != "prefill" {
			if got := suggest.Nearest(candidate, []string{candidate}); got != candidate {
				t.Errorf("%q is not nearest to itself: %q", candidate, got)
			}
		}
	})
}
