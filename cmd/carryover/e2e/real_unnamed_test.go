//go:build e2e

package e2e

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
)

// The conversations without ids, of which some begin with one and the same question; and how many of the tokens they must reuse, in percent,
// that they reuse with ids.
const (
	unnamedDialogues = 16
	alikeDialogues   = 8
	unnamedTokens    = 95
)

// unnamed holds conversations without ids, and then the same with ids.
func (s *suite) unnamed(t *testing.T) string {
	t.Helper()
	p := s.launch(t, append([]string{"--teach-shapes", "on"}, byContent...)...)
	for _, prompt := range []string{chatPrompt, textPrompt, idsPrompt} { // what has to be learnt once is learnt before
		s.tell(t, dialogue{name: "the learnt " + prompt, prompt: prompt, faithful: true, salted: true}, p)
	}
	right := map[string]told{}
	without := s.reusedBy(t, p, true, right)
	with := s.reusedBy(t, p, false, right)
	if with.tokens == 0 || 100*without.tokens < unnamedTokens*with.tokens {
		t.Errorf("tokens reused without ids: got %s, want at least %d %%; misses %v", share(without.tokens, with.tokens), unnamedTokens, without.misses)
	}
	return fmt.Sprintf("%d turns without ids, %d wrong, hits %s, misses %v; %d turns with ids, %d wrong, hits %s, misses %v; tokens reused without ids of those with: %s",
		without.turns, without.wrong, share(without.hits, without.later), without.misses,
		with.turns, with.wrong, share(with.hits, with.later), with.misses, share(without.tokens, with.tokens))
}

// reusedTokens is what some conversations have reused.
type reusedTokens struct {
	turns, wrong, later, hits, tokens int
	misses                            map[string]int
}

// reusedBy holds the conversations, each of which has the same salt. The right answers are asked for once.
func (s *suite) reusedBy(t *testing.T, p *proxyProcess, nameless bool, right map[string]told) reusedTokens {
	t.Helper()
	r, salt := reusedTokens{misses: map[string]int{}}, rand.Text()
	for _, k := range unnamedOnes() {
		k.nameless = nameless
		c := k.begin(s.prefill)
		c.salt = salt
		for turn := 1; turn <= turnsPerDialogue; turn++ {
			request := c.next(t, turn)
			name := fmt.Sprintf("%s, turn %d", k.name, turn)
			if _, known := right[name]; !known {
				right[name] = s.alone(t, request)
			}
			got := p.ask(t, request)
			t.Logf("%-24s named %-5v %5.2f s  %s", name, !nameless, got.took.Seconds(), got.reuse.text)
			if r.turns++; !got.right(right[name]) {
				r.wrong++
				t.Errorf("%s, named %v (%s):\n got %s\nwant %s", name, !nameless, got.reuse.text, got, right[name])
				break // the history would be another
			}
			switch {
			case turn == 1:
			case got.reuse.hit:
				r.later, r.hits, r.tokens = r.later+1, r.hits+1, r.tokens+got.reuse.tokens
			default:
				r.later++
				r.misses[got.reuse.reason]++
			}
			c.remember(got)
		}
	}
	return r
}

// unnamedOnes are conversations of all kinds of prompt, some with an edited history.
func unnamedOnes() []dialogue {
	var list []dialogue
	for i, prompt := range slices.Repeat([]string{chatPrompt, chatPrompt, textPrompt, idsPrompt}, unnamedDialogues/4) {
		k := dialogue{name: fmt.Sprintf("the unnamed %d", i+1), prompt: prompt, faithful: true, salted: true}
		switch {
		case i < alikeDialogues:
			k.ask = alikeQuestion
		case i%8 == 1:
			k.ask = unicodeQuestion
		case i%8 == 5:
			k.edit, k.faithful = changeAnswer, false
		}
		list = append(list, k)
	}
	return list
}

// alikeQuestion is the same in all conversations at first.
func alikeQuestion(name string, turn int) string {
	if turn == 1 {
		name = "everybody"
	}
	return plainQuestion(name, turn)
}
