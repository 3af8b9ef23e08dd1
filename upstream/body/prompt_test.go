package body

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
)

func TestRequest_Budget(t *testing.T) {
	for api, rows := range map[API]map[string]string{
		Chat: {
			`{}`: "0 0 true", `{"max_tokens":5,"max_completion_tokens":null,"min_tokens":5}`: "5 5 true", `{"max_tokens":5,"max_completion_tokens":7}`: "7 0 true",
			`{"min_tokens":9}`: "0 9 true", `{"max_tokens":-1}`: "0 0 false", `{"max_tokens":0}`: "0 0 false", `{"max_tokens":"5"}`: "0 0 false",
			`{"max_tokens":5,"min_tokens":6}`: "0 0 false", `{"min_tokens":-1}`: "0 0 false", `{"min_tokens":null}`: "0 0 false",
		},
		Text:      {`{"max_tokens":null}`: "16 0 true", `{"min_tokens":17}`: "0 0 false"},
		Messages:  {`{"max_tokens":8}`: "8 0 true", `{"min_tokens":null}`: "0 0 true"},
		Responses: {`{"max_tokens":8,"max_output_tokens":3}`: "3 0 true"},
	} {
		for body, want := range rows {
			if got := fmt.Sprint(mustParse(t, api, body).Budget()); got != want {
				t.Errorf("%s %s: got %s, want %s", api.Path(), body, got, want)
			}
		}
	}
}

// chatOf is a chat request with messages of so many bytes each.
func chatOf(tb testing.TB, head string, sizes ...int) *Request {
	tb.Helper()
	messages := make([]string, len(sizes))
	for i, size := range sizes {
		messages[i] = fmt.Sprintf(`{"role":"user","content":"%d%s"}`, i, strings.Repeat("x", size))
	}
	return mustParse(tb, Chat, `{`+head+`"messages":[`+strings.Join(messages, ",")+`]}`)
}

func TestPromptChain_GrowsWithAConversation(t *testing.T) {
	seed := maphash.MakeSeed()
	var before []uint64
	for turn := 1; turn < 12; turn++ {
		sizes := slices.Repeat([]int{700}, turn)
		now := chatOf(t, `"model":"m",`, sizes...).Prompt().Chain(seed)
		if !slices.Equal(before, now[:min(len(before), len(now))]) || len(now) < len(before) {
			t.Fatalf("turn %d: the chain does not go on from that of the turn before", turn)
		}
		if want := turn * (700 + 30) / ChainPiece; len(now) < want-1 || len(now) > want+1 {
			t.Errorf("turn %d: %d pieces, want about %d", turn, len(now), want)
		}
		before = now
	}
	for i := range before {
		if slices.Contains(before[i+1:], before[i]) {
			t.Errorf("piece %d has the hash of a later one", i)
		}
	}
}

func TestPromptChain_DiffersFromTheFirstDifferenceOn(t *testing.T) {
	seed := maphash.MakeSeed()
	of := func(head string, sizes ...int) []uint64 { return chatOf(t, head, sizes...).Prompt().Chain(seed) }
	same := func(a, b []uint64) (n int) {
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	all := of(`"model":"m",`, 9000)
	for _, head := range []string{`"model":"n",`, `"model":"m","cache_salt":"s",`, `"model":"ms",`, `"model":"m","tools":[{"type":"function"}],`} {
		if n := same(all, of(head, 9000)); n > 0 {
			t.Errorf("%s: %d pieces are the same", head, n)
		}
	}
	if n := same(all, chatOf(t, `"model":"m",`, 9000).Prompt().Chain(maphash.MakeSeed())); n > 0 {
		t.Errorf("another seed: %d pieces are the same", n)
	}
	if n := same(of(`"model":"m",`, 4000, 5000), of(`"model":"m",`, 4000, 4999)); n < 3 || n > 9 {
		t.Errorf("%d pieces are the same", n)
	}
}

func TestPromptChain_IsBounded(t *testing.T) {
	seed := maphash.MakeSeed()
	if n := len(chatOf(t, "", 500_000).Prompt().Chain(seed)); n != MaxChain {
		t.Errorf("%d pieces, want %d", n, MaxChain)
	}
	if chain := chatOf(t, "", 500).Prompt().Chain(seed); chain != nil {
		t.Errorf("less than a piece has a chain: %v", chain)
	}
	if n := len(chatOf(t, `"tools":"`+strings.Repeat("x", 300_000)+`",`, 500).Prompt().Chain(seed)); n != MaxChain {
		t.Errorf("%d pieces of tools, want %d", n, MaxChain)
	}
	for _, body := range []string{`{}`, `{"prompt":null}`, `{"prompt":[]}`, `{"prompt":"` + strings.Repeat("x", 5000) + `"}`} {
		if n, want := len(mustParse(t, Text, body).Prompt().Chain(seed)), len(body)/ChainPiece; n != want {
			t.Errorf("%.20s: %d pieces, want %d", body, n, want)
		}
	}
	r := chatOf(t, `"model":"m","cache_salt":"s","tools":[],`, 60_000)
	if n := testing.AllocsPerRun(100, func() { r.Prompt().Chain(seed) }); n > 1 {
		t.Errorf("%v allocations, want one", n)
	}
}
