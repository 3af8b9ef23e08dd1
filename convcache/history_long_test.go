package convcache_test

import (
	"fmt"
	"strings"
	"testing"

	"carryover/convcache"
)

// long is a text of so many bytes with an escape in it, and the same one spelled otherwise.
func long(n int) (spelled, otherwise string) {
	text := strings.Repeat("0123456789abcde ", n/16+1)[:n-1]
	return text + `\n`, strings.Replace(text, "a", `\u0061`, 1) + `\u000a`
}

func TestChatHistory_LongStringsCountWhole(t *testing.T) {
	for _, n := range []int{511, 512, 513, 4096, 100_000} {
		text, otherwise := long(n)
		as := func(content string) string { return `[{"role":"user","content":` + content + `}]` }
		for name, both := range map[string][2]string{
			"content": {as(`"` + text + `"`), as(`"` + otherwise + `"`)},
			"a part":  {as(`[{"type":"text","text":"` + text + `"}]`), as(`[{"text":"` + otherwise + `","type":"text"}]`)},
		} {
			want := digest(t, nil, both[0])
			if digest(t, nil, both[1]) != want {
				t.Errorf("%s of %d bytes has another digest where it is spelled otherwise", name, n)
			}
			for what, changed := range map[string]string{
				"the first byte": strings.Replace(both[0], "0123", "X123", 1), "the last": strings.Replace(both[0], `\n`, `\t`, 1),
				"one more": strings.Replace(both[0], `\n`, `\nx`, 1), "one less": strings.Replace(both[0], `\n`, "", 1),
			} {
				if digest(t, nil, changed) == want {
					t.Errorf("%s of %d bytes: %s does not count", name, n, what)
				}
			}
		}
	}
}

func TestExtends_EchoOfALongReply(t *testing.T) {
	for _, n := range []int{511, 512, 100_000} {
		text, otherwise := long(n)
		said := strings.TrimSuffix(text, `\n`) + "\n"
		calls := `"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": \"` + strings.TrimSuffix(text, `\n`) + `\"}"}}]`
		for name, tc := range map[string]struct {
			reply convcache.Reply
			echo  string
			want  bool
		}{
			"content":         {convcache.Reply{Content: said}, `"content":"` + otherwise + `"`, true},
			"a changed reply": {convcache.Reply{Content: said}, `"content":"` + otherwise + `x"`, false},
			"a tool call": {convcache.Reply{ToolCalls: []convcache.ToolCall{
				{ID: "c1", Name: "f", Arguments: `{"a": "` + strings.TrimSuffix(text, `\n`) + `"}`},
			}}, calls, true},
		} {
			b := branch(mustChat(t, nil, `[`+user+`]`), tc.reply)
			if got := mustChat(t, nil, `[`+user+`,{"role":"assistant",`+tc.echo+`},`+user+`]`).Extends(b); got != tc.want {
				t.Errorf("%s of %d bytes: got %v, want %v", name, n, got, tc.want)
			}
		}
	}
}

func TestHistoryKey_KeysLongStrings(t *testing.T) {
	of := func(key convcache.HistoryKey, text string) convcache.Digest {
		h, err := chatHistory(key, nil, []byte(`[{"role":"user","content":"`+text+`"}]`))
		if err != nil {
			t.Fatal(err)
		}
		d, _ := h.After(convcache.Reply{})
		return d
	}
	other, err := convcache.NewSecret([]byte("another secret of tests"))
	if err != nil {
		t.Fatal(err)
	}
	text, otherwise := long(1000)
	digests := map[convcache.Digest]bool{}
	for _, key := range []convcache.HistoryKey{historyKey(t), other.HistoryKey(), {}} {
		if of(key, text) != of(key, otherwise) {
			t.Error("another digest where the text is spelled otherwise")
		}
		digests[of(key, text)] = true
	}
	if len(digests) != 3 {
		t.Errorf("three keys give %d digests", len(digests))
	}
	if got := fmt.Sprintf("%v %+v %#v %s", historyKey(t), historyKey(t), historyKey(t), historyKey(t)); strings.Count(got, "[history key]") != 4 {
		t.Errorf("a key prints as %q", got)
	}
}
