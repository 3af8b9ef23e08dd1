//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
)

// strangeReuse is how much of what the tokens allow must be reused at least, in percent: of all, and of what goes beyond the
// prompts that prefill has computed itself.
const strangeReuse = 80

// strangers are conversations whose requests name none and that the program does not know by their content either, and that share no beginning: what one of them finds in a cache is its own.
func strangers() (list []dialogue) {
	for n := range 6 {
		for _, kind := range []string{chatPrompt, textPrompt, idsPrompt} {
			k := dialogue{name: fmt.Sprintf("stranger %d by %s", n, kind), prompt: kind, faithful: true, maxTokens: 24, salted: n%2 == 0}
			switch {
			case n == 4:
				k.again = 3
			case n == 5 && kind == idsPrompt:
				k.edit, k.faithful = changeID, false
			case n == 5:
				k.edit, k.faithful = changeWord, false
			}
			if kind == idsPrompt && n%2 == 0 {
				k.maxTokens = readByLeg
			}
			list = append(list, k)
		}
	}
	return list
}

// stranger is such a conversation under way.
type stranger struct {
	*telling
	prompts, computed [][]int // of its turns so far: the prompts, and with the answers what decode held
}

// strangeTurn is one turn of it, and what its tokens are.
type strangeTurn struct {
	turnOutcome
	prompt, output []int
	cached         int // tokens that prefill took from its cache
	own, allowed   int // that it must have of the prompts before, and of all that was computed before
}

// held are the tokens that decode has in its cache after the turn; the last one sampled is not.
func (o strangeTurn) held() []int { return slices.Concat(o.prompt, o.output[:len(o.output)-1]) }

// strangers has the conversations of a round ask together, and begins the next round when all of them are handed back.
func (s *suite) strangers(t *testing.T) string {
	prefill := recordEngine(t, config.RolePrefill, s.prefill.url)
	p := launch(t, s.binary, prefill.url, s.decode.url, "--hand-back", "now")
	held := s.decode.counted(t).pinned
	var list []*stranger
	for _, k := range strangers() {
		c := k.begin(s.prefill)
		c.parts[0].text = k.name + ". " + about
		list = append(list, &stranger{telling: c})
	}
	var turns []strangeTurn
	worth := 0
	for turn := 1; turn <= turnsPerDialogue; turn++ {
		for _, o := range s.strangeRound(t, p, prefill, list, turn) {
			turns = append(turns, o)
			if len(o.held())/blockSize > len(o.prompt)/blockSize {
				worth++ // the answer has filled a block, which prefill does not have
			}
		}
		p.awaitHandBacks(t, worth)
	}
	free := s.freed(t, "after the last hand-back", held)
	p.wantHandBacksDone(t)
	if legs := len(p.log.handBacks()); legs != worth {
		t.Errorf("hand-backs: got %d, want %d: one for each answer that has filled a block", legs, worth)
	}
	s.handedBack = prefill.seen()
	if sent := ticketsIn(s.handedBack); sent != 0 {
		t.Errorf("%d turns have sent a ticket", sent)
	}
	reuse := checkStrangeReuse(t, turns)
	wrong := 0
	for _, o := range turns {
		if !o.got.right(o.want) {
			wrong++
			t.Errorf("%s:\n got %s\nwant %s", o, o.got, o.want)
		}
	}
	poisoned := s.poisoned(t, turns)
	return fmt.Sprintf("%d conversations, %d turns, no ticket, %d hand-backs, %s; %d wrong, %d poisoned of %d asked again; decode as before %s after",
		len(list), len(turns), len(p.log.handBacks()), reuse, wrong, poisoned, 2*len(turns), seconds(free))
}

// strangeRound asks for a turn of each conversation, after lone requests that say what is right and which tokens the turns are made of.
func (s *suite) strangeRound(t *testing.T, p *proxyProcess, prefill *recorder, list []*stranger, turn int) []strangeTurn {
	t.Helper()
	turns := make([]strangeTurn, len(list))
	plain, lone := make([]asked, len(list)), make([]asked, len(list))
	for i, c := range list {
		plain[i] = c.next(t, turn).plain()
		lone[i] = plain[i].lone().with(object{"return_token_ids": true})
		turns[i] = strangeTurn{turnOutcome: turnOutcome{dialogue: c.dialogue, turn: turn, asked: plain[i]}, prompt: c.promptIDs(t)}
	}
	wants := askTogether(t, s.client, s.prefill.url, lone)
	before := len(prefill.seen())
	answers := askTogether(t, p.client, p.base, plain)
	exchanges := prefill.seen()[before:]
	for i, c := range list {
		o := &turns[i]
		o.want, o.got, o.output = wants[i], answers[i], wants[i].ids
		if o.want.fault != "" || o.got.fault != "" || len(o.output) == 0 {
			t.Fatalf("%s:\n got %s\nwant %s", o, o.got, o.want)
		}
		if o.asked.body["return_token_ids"] != true {
			o.want.ids = nil
		}
		o.cached = cachedFor(t, exchanges, o.prompt)
		o.own, o.allowed = allowed(c.prompts, o.prompt), allowed(c.computed, o.prompt)
		t.Logf("%-28s %3d+%2d tokens, %3d cached, %3d allowed, %3d by the prompts alone, %s",
			o, len(o.prompt), len(o.output), o.cached, o.allowed, o.own, o.got.reuse.text)
		c.prompts, c.computed = append(c.prompts, o.prompt), append(c.computed, o.held())
		c.remember(o.got)
	}
	return turns
}

// askTogether asks eight at a time, in any order.
func askTogether(t *testing.T, client *http.Client, base string, list []asked) []told {
	t.Helper()
	answers, failures := make([]told, len(list)), make([]error, len(list))
	var all sync.WaitGroup
	free := make(chan struct{}, 8) // one word for each that is under way
	for i, a := range list {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			answers[i], failures[i] = post(t, client, base, a)
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatalf("POST %s: %v", base, err)
	}
	return answers
}

// promptIDs are the ids of the prompt that was made last.
func (c *stranger) promptIDs(t *testing.T) []int {
	t.Helper()
	switch c.prompt {
	case idsPrompt:
		return slices.Clone(c.last().body["prompt"].([]int))
	case chatPrompt:
		return c.engine.tokenize(t, object{"messages": c.last().body["messages"], "add_generation_prompt": true})
	}
	return c.engine.tokenize(t, object{"prompt": c.last().body["prompt"]})
}

// cachedFor is what prefill says it took from its cache for the turn with that prompt.
func cachedFor(t *testing.T, exchanges []exchange, prompt []int) int {
	t.Helper()
	ids := string(encode(prompt))
	for _, x := range exchanges {
		if isHandBack(x) {
			continue
		}
		for _, member := range []string{"prompt_token_ids", "choices.0.prompt_token_ids"} {
			if strings.ReplaceAll(gjson.GetBytes(x.answer, member).Raw, " ", "") == ids {
				return int(gjson.GetBytes(x.answer, "usage.prompt_tokens_details.cached_tokens").Int())
			}
		}
	}
	t.Errorf("no leg with the %d ids of the prompt among %d exchanges with prefill", len(prompt), len(exchanges))
	return 0
}

// allowed is how many tokens of a prompt are in whole blocks that one of the histories begins with. Prefill always computes the last
// token of a prompt.
func allowed(histories [][]int, prompt []int) (tokens int) {
	for _, history := range histories {
		n := 0
		for n < len(history) && n < len(prompt)-1 && history[n] == prompt[n] {
			n++
		}
		tokens = max(tokens, n/blockSize*blockSize)
	}
	return tokens
}

// checkStrangeReuse holds what prefill found in its cache against what the tokens allow.
func checkStrangeReuse(t *testing.T, turns []strangeTurn) string {
	t.Helper()
	var found, may, beyond, mayBeyond int
	for _, o := range turns {
		if o.cached > o.allowed {
			t.Errorf("%s: prefill found %d tokens in its cache, more than the %d that it can have of this conversation", o, o.cached, o.allowed)
		}
		found, may = found+o.cached, may+o.allowed
		beyond, mayBeyond = beyond+max(0, o.cached-o.own), mayBeyond+o.allowed-o.own
	}
	for _, reuse := range []struct {
		what        string
		part, whole int
	}{
		{"tokens that prefill found in its cache, of those that the tokens allow", found, may},
		{"of those that decode generated", beyond, mayBeyond},
	} {
		if reuse.whole == 0 || 100*reuse.part < strangeReuse*reuse.whole {
			t.Errorf("%s: got %s, want at least %d %%", reuse.what, share(reuse.part, reuse.whole), strangeReuse)
		}
	}
	return fmt.Sprintf("reused tokens %s of what is allowed, generated ones among them %s", share(found, may), share(beyond, mayBeyond))
}

// poisoned asks prefill, whose cache has been written into by then, for the beginning of each answer and for its last token, which
// follows all of what was handed back.
func (s *suite) poisoned(t *testing.T, turns []strangeTurn) (poisoned int) {
	t.Helper()
	const first = 4
	var list []asked
	var wants [][]int
	for _, o := range turns {
		again := o.asked.with(object{"stream": false, "max_tokens": first, "return_token_ids": true})
		delete(again.body, "stream_options")
		last := again.with(object{"prompt": o.held(), "max_tokens": 1})
		last.path = "/v1/completions"
		delete(last.body, "messages")
		list = append(list, again, last)
		wants = append(wants, o.output[:min(first, len(o.output))], o.output[len(o.output)-1:])
	}
	for i, got := range askTogether(t, s.client, s.prefill.url, list) {
		what := fmt.Sprintf("%s, asked for %s again", turns[i/2], choose(i%2 == 0, "its answer", "its last token"))
		if !slices.Equal(got.ids, wants[i]) {
			poisoned++
			t.Errorf("%s: got %s, want ids %v", what, got, wants[i])
		}
		if got.cached < blockSize {
			t.Errorf("%s: %d tokens from the cache, want at least a block", what, got.cached)
		}
	}
	return poisoned
}
