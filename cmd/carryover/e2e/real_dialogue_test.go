//go:build e2e

package e2e

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// turnsPerDialogue is how many turns each conversation of the suite has.
const turnsPerDialogue = 4

// about is the beginning of every conversation, as long as a short system prompt.
const about = "You answer questions about a service that moves the memory of a language model between two machines. " +
	"You answer in one short sentence, you never repeat the question, and you say so when you do not know. " +
	"The first machine reads the prompt once; the second machine writes the answer and keeps what it has computed. " +
	"When the next question comes, the first machine reads from the second what it would have to compute again. "

// readable is a length of answers that prefill reads from decode although it has the prompt before them in its own prefix
// cache: fewer than 64 missing tokens it computes itself (kv_recompute_threshold, nixl/pull_scheduler.py, vLLM 0.32). The
// answer has to be continued by ids, because its text hardly ever tokenises as it was sampled: the weights are random.
const readable = 88

// The kinds of prompt.
const (
	chatPrompt = "chat"
	textPrompt = "text"
	idsPrompt  = "ids" // a text completion whose prompt is a list of token ids
)

// dialogue describes a conversation of the suite.
type dialogue struct {
	name      string
	prompt    string                             // chatPrompt, textPrompt or idsPrompt
	faithful  bool                               // every turn continues the one before as it was
	stream    func(turn int) bool                // nil: turns 1 and 3
	ask       func(name string, turn int) string // nil: plainQuestion
	edit      func(parts []part, turn int) []part
	again     int    // this turn asks what the turn before asked
	replayed  bool   // turns 3 and 4 ask what turns 1 and 2 asked
	fill      bool   // every prompt is an exact multiple of the block size
	nameless  bool   // tells no conversation_id
	salted    bool   // has a cache_salt of its own; the others share the engines' prefix caches
	maxTokens int    // 0 for 16
	members   object // more of the body
}

// part is what one side said; that of a prompt of ids has ids only.
type part struct {
	text string
	ids  []int
}

// telling is a dialogue under way. The parts are what the service is about, then questions and answers in turn.
type telling struct {
	dialogue
	engine       *engine // tokenises
	conversation string
	salt         string
	parts        []part
	before       []asked
}

func (k dialogue) begin(e *engine) *telling {
	return &telling{dialogue: k, engine: e, conversation: "e2e-" + rand.Text(), salt: rand.Text(), parts: []part{{text: about}}}
}

// next is the request of a turn, counted from 1.
func (c *telling) next(t *testing.T, turn int) asked {
	t.Helper()
	if turn == c.again {
		c.parts = c.parts[:len(c.parts)-1] // the answer, which is asked for again
		return c.last()
	}
	if c.replayed && turn > 2 {
		c.before = append(c.before, c.before[turn-3])
		return c.last()
	}
	if turn > 1 && c.edit != nil {
		c.parts = c.edit(slices.Clone(c.parts), turn)
	}
	ask := c.ask
	if ask == nil {
		ask = plainQuestion
	}
	c.parts = append(c.parts, part{text: ask(c.name, turn)})
	switch {
	case c.fill:
		c.fillBlock(t)
	case c.prompt == idsPrompt:
		c.tokenize(t)
	}
	c.before = append(c.before, c.request(turn))
	return c.last()
}

// last is the request of the turn before.
func (c *telling) last() asked { return c.before[len(c.before)-1] }

// remember continues the history with an answer.
func (c *telling) remember(a told) {
	answer := part{text: a.text}
	if c.prompt == idsPrompt {
		answer = part{ids: a.ids}
	}
	c.parts = append(c.parts, answer)
}

func (c *telling) request(turn int) asked {
	a := asked{"/v1/completions", object{"prompt": c.said()}}
	switch c.prompt {
	case chatPrompt:
		a = asked{"/v1/chat/completions", object{"messages": c.messages()}}
	case idsPrompt:
		a = asked{"/v1/completions", object{"prompt": c.ids(), "return_token_ids": true}}
	}
	a = a.with(object{
		"model": model, "temperature": 0, "max_tokens": max(c.maxTokens, 16),
	}).with(c.members)
	if !c.nameless {
		a.body["conversation_id"] = c.conversation
	}
	if c.salted {
		a.body["cache_salt"] = c.salt
	}
	if c.stream == nil && turn%2 == 1 || c.stream != nil && c.stream(turn) {
		a = a.streaming()
	}
	return a
}

func (c *telling) messages() []map[string]string {
	list := []map[string]string{{"role": "system", "content": c.parts[0].text}}
	for i, p := range c.parts[1:] {
		list = append(list, map[string]string{"role": choose(i%2 == 0, "user", "assistant"), "content": p.text})
	}
	return list
}

// said is the history of a text completion.
func (c *telling) said() string {
	var all strings.Builder
	for i, p := range c.parts {
		if i%2 == 1 {
			all.WriteString("\n")
		}
		all.WriteString(p.text)
	}
	return all.String()
}

func (c *telling) ids() []int {
	var all []int
	for _, p := range c.parts {
		all = append(all, p.ids...)
	}
	return all
}

// tokenize gives the parts that have none their ids.
func (c *telling) tokenize(t *testing.T) {
	t.Helper()
	for i, p := range c.parts {
		if p.ids == nil {
			c.parts[i].ids = c.engine.tokenize(t, object{"prompt": "\n" + p.text})
		}
	}
}

// fillBlock makes the last question longer until the prompt ends with a block.
func (c *telling) fillBlock(t *testing.T) {
	t.Helper()
	last := &c.parts[len(c.parts)-1]
	for range 4 * blockSize {
		prompt := object{"prompt": c.said()}
		if c.prompt == chatPrompt {
			prompt = object{"messages": c.messages(), "add_generation_prompt": true}
		}
		if len(c.engine.tokenize(t, prompt))%blockSize == 0 {
			return
		}
		last.text += " a"
	}
	t.Fatalf("%s: no prompt of a multiple of %d tokens", c.name, blockSize)
}

func plainQuestion(name string, turn int) string {
	return fmt.Sprintf([]string{
		"Which of the two machines holds the blocks of %s after a turn?",
		"And for how long are they kept for %s when nobody asks again?",
		"What does the next prompt of %s begin with, and who reads it first?",
		"Why must nobody read a block of %s twice?",
	}[turn-1], name)
}

func unicodeQuestion(name string, turn int) string {
	return []string{
		"Où se trouvent les blocs après la réponse à « " + name + " » ?",
		"他们会保存多久？ " + name + " 🧠➡️🧠",
		"Привет, " + name + "! Что читает первая машина?",
		"e\u0301 is not \u00e9 for " + name + ", and 👩‍👩‍👧 is one family\u200b.",
	}[turn-1]
}

// The edits that users and front ends make.

// changeWord changes a word of the last question but one, or of the only one.
func changeWord(parts []part, _ int) []part {
	parts[len(parts)-2].text = strings.Replace(parts[len(parts)-2].text, " ", " perhaps ", 3)
	return parts
}

// changeFirst changes the first question, from which everything else follows.
func changeFirst(parts []part, turn int) []part {
	parts[1].text = fmt.Sprintf("%s (version %d)", parts[1].text, turn)
	return parts
}

func changeAnswer(parts []part, turn int) []part {
	last := &parts[len(parts)-1]
	runes := []rune(last.text)
	last.text = string(runes[:len(runes)/2]) + fmt.Sprintf(" as edited before turn %d.", turn)
	return parts
}

// changeID changes one token of the last answer.
func changeID(parts []part, _ int) []part {
	last := slices.Clone(parts[len(parts)-1].ids)
	last[len(last)/2]++
	parts[len(parts)-1].ids = last
	return parts
}

// dropOldest drops the first question and its answer, as front ends do when a conversation becomes too long.
func dropOldest(parts []part, turn int) []part {
	if turn != 3 {
		return parts
	}
	return slices.Delete(parts, 1, 3)
}

// dropLatest drops the last question and its answer.
func dropLatest(parts []part, turn int) []part {
	if turn != 3 {
		return parts
	}
	return parts[:len(parts)-2]
}

func always(int) bool { return true }
func never(int) bool  { return false }

// dialogues are the conversations of the suite.
func dialogues() []dialogue {
	return []dialogue{
		{name: "the first echo", prompt: chatPrompt, faithful: true, stream: always},
		{name: "the second echo", prompt: chatPrompt, faithful: true, stream: never, salted: true},
		{name: "the third echo", prompt: textPrompt, faithful: true, salted: true},
		{name: "the listed echo", prompt: idsPrompt, faithful: true, salted: true},
		{name: "a long answer", prompt: idsPrompt, faithful: true, maxTokens: readable, salted: true},
		{name: "the full block", prompt: chatPrompt, faithful: true, fill: true, salted: true},
		{name: "the full text", prompt: textPrompt, faithful: true, fill: true},
		{name: "Zoë", prompt: chatPrompt, faithful: true, ask: unicodeQuestion, salted: true},
		{name: "naïveté", prompt: textPrompt, faithful: true, ask: unicodeQuestion, stream: never},
		{name: "a changed word", prompt: chatPrompt, edit: changeWord, salted: true},
		{name: "a changed text", prompt: textPrompt, edit: changeWord, stream: always},
		{name: "an early change", prompt: chatPrompt, edit: changeFirst},
		{name: "an edited answer", prompt: chatPrompt, edit: changeAnswer, salted: true},
		{name: "an edited list", prompt: idsPrompt, edit: changeID, stream: always, salted: true},
		{name: "asked again", prompt: chatPrompt, again: 3, salted: true},
		{name: "asked again as text", prompt: textPrompt, again: 4},
		{name: "told again", prompt: idsPrompt, replayed: true, maxTokens: readable, salted: true},
		{name: "told again without a name", prompt: chatPrompt, replayed: true, nameless: true, maxTokens: readable},
		{name: "a dropped message", prompt: chatPrompt, edit: dropOldest, salted: true},
		{name: "a dropped turn", prompt: chatPrompt, edit: dropLatest, stream: never},
	}
}
