package engines

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
)

// TestRenderings_AreWhatTheMessagesSay has prompts rendered in an order in which what was rendered is of use, and may not be used,
// and each afresh.
func TestRenderings_AreWhatTheMessagesSay(t *testing.T) {
	kept, seed := &renderings{numerals: newNumerals()}, maphash.MakeSeed()
	said := func(role, text string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, text) }
	turns := func(conversation, n int, change string) string {
		list := []string{said("user", fmt.Sprintf("#%d what was said first%s", conversation, change))}
		for i := range n {
			list = append(list, said("assistant", fmt.Sprintf("answer %d", i)), said("user", fmt.Sprintf("and %d?", i)))
		}
		return strings.Join(list, ",")
	}
	prompts := []string{"", said("system", ""), turns(7, 0, ""), said("system", "x")}
	for n := range 6 {
		prompts = append(prompts, turns(7, n, ""), turns(8, n, ""), turns(7+renderingSlots, n, ""))
	}
	prompts = append(prompts, turns(7, 5, ""), turns(7, 5, ", and otherwise"), turns(7, 5, ""), turns(7, 2, ""), turns(7, 3, ""),
		turns(7, 2, "")+","+said("assistant", "another"), turns(7, 2, "")+","+said("user", "another"), turns(7, 2, "")+","+said("user", "anothes"))
	for i, messages := range prompts {
		var r chatRequest
		must(t, r.read(seed, []byte(chat(messages, `"stream":true`))))
		want := string((&renderings{numerals: kept.numerals}).prompt(nil, &r))
		if !kept.same([]byte(want), &r) || !kept.same([]byte(strings.ReplaceAll(want, ",", ", ")), &r) {
			t.Errorf("prompt %d: its own ids are others", i)
		}
		if got := string(kept.prompt([]byte("x"), &r)); got != "x"+want || strings.Count(want, ",")+1 != r.tokens() {
			t.Errorf("prompt %d: got %s, want %s", i, got, want)
		}
		for _, other := range []string{want[:len(want)-1], want + "]", strings.Replace(want, "3]", "2]", 1), strings.Replace(want, "[", "[8,", 1), "", "[]"} {
			if kept.same([]byte(other), &r) {
				t.Errorf("prompt %d: %s is %s", i, other, want)
			}
		}
	}
}
