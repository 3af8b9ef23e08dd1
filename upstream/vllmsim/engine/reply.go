package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/kv"
)

// A reply is what the model samples: a function of the state after reading the KV that is present. It has sentences drawn from that state or,
// if the KV is right, what the last user message orders:
//
//	SAY <text>            exactly that text
//	CALL <name> <object>  a tool call with these arguments, unless a tool has answered since
//	THINK                 reasoning first; may stand before the other two
//	HUSH                  nothing: the end token is the first
//
// The result of a tool orders the next call in the same way, so that agents can continue. With wrong KV the model cannot read the message,
// and talks about something else.
//
// Connectors that hand over the first token send decode a prompt that ends with that token. If that token begins the answer to the tokens
// before it, the reply is the rest of that answer (resume).
type reply struct {
	tok      *bpe.Tokenizer
	split    bool // sample sequences that the tokenizer would never produce
	queue    []int32
	drawn    uint64 // state of the generator
	sampled  int
	target   int // the reply ends at the first sentence end after this many tokens; 0: when the queue is empty
	midwords bool
}

// Natural replies have 30 to 60 tokens: a sentence is at most 20 tokens long.
const (
	ShortestTarget = 30
	targetSpread   = 11
	thoughtTarget  = 12
	longestOpening = 16 // tokens of a generation prompt, including its marker
)

func newReply(e *Engine, req *Request, state uint64, wrong bool) *reply {
	r := &reply{
		tok:      e.tok,
		split:    e.Live.Load().Sampling == config.SamplingNoncanonical,
		drawn:    kv.Mix(state + uint64(req.Variant)),
		midwords: !opensText(e.tok, req.Computed),
	}
	r.target = ShortestTarget + r.draw(targetSpread)
	if wrong {
		return r
	}
	order := lastInstruction(e.tok, req.Computed)
	if order.hush {
		r.target = 0
	}
	if order.think {
		r.queue = append(r.queue, bpe.Think)
		r.midwords = false
		for n := len(r.queue); len(r.queue)-n < thoughtTarget; {
			r.sentence()
		}
		r.queue = append(r.queue, bpe.ThinkEnd)
		r.midwords = false
	}
	if order.script != "" {
		r.queue = append(r.queue, r.splitAll(e.tok.Encode(order.script))...)
		r.target = 0
	}
	return r
}

// resume returns the rest of the reply that begins with the last token of the prompt. It returns nil if the answer to the tokens before
// begins with another token. before is the state after reading those tokens.
func resume(e *Engine, req *Request, before uint64, wrong bool) *reply {
	last := len(req.Computed) - 1
	if last < 1 || req.Computed[last] == bpe.ImEnd || !awaitsAnswer(e.tok, req.Computed[:last]) {
		return nil
	}
	asked := *req
	asked.Computed = req.Computed[:last]
	r := newReply(e, &asked, before, wrong)
	id := r.next()
	if id == bpe.ImEnd {
		id = r.goOn() // min_tokens and ignore_eos need a token other than the end
	}
	if id != req.Computed[last] {
		return nil
	}
	return r
}

// awaitsAnswer reports whether a prompt ends with a generation prompt (template.go) or contains no ChatML at all.
func awaitsAnswer(t *bpe.Tokenizer, prompt []int32) bool {
	at := lastIndex(prompt, bpe.ImStart)
	if at < 0 {
		return true
	}
	if len(prompt)-at > longestOpening {
		return false
	}
	opening := t.Decode(prompt[at+1:])
	return opening == "assistant\n" || opening == "assistant\n<think>\n\n</think>\n\n"
}

// next returns the next token, or the end token if the reply is complete.
func (r *reply) next() int32 {
	if len(r.queue) == 0 {
		if r.sampled >= r.target {
			return bpe.ImEnd
		}
		r.sentence()
	}
	return r.take()
}

// goOn returns another token if the end token is not allowed yet.
func (r *reply) goOn() int32 {
	r.midwords = true
	r.sentence()
	return r.take()
}

func (r *reply) take() int32 {
	id := r.queue[0]
	r.queue = r.queue[1:]
	r.sampled++
	return id
}

// sentence queues one more sentence. Its pre-tokens begin with a space, except at the beginning of a text, so they never merge with the text
// before them.
func (r *reply) sentence() {
	var text strings.Builder
	if r.midwords {
		text.WriteByte(' ')
	}
	r.midwords = true
	words := lexicon()
	for i, choices := range words {
		word := choices[r.draw(len(choices))]
		if i == 0 {
			first, n := utf8.DecodeRuneInString(word)
			word = string(unicode.ToUpper(first)) + word[n:]
		} else {
			text.WriteByte(' ')
		}
		text.WriteString(word)
	}
	text.WriteByte('.')
	r.queue = append(r.queue, r.splitAll(r.tok.EncodePlain(nil, text.String()))...)
}

func (r *reply) draw(n int) int {
	r.drawn = kv.Mix(r.drawn)
	return int(r.drawn % uint64(n))
}

// splitAll replaces tokens by the two tokens that they were merged from: the first possible one, and a third of the others. The text is the
// same, but the tokenizer never produces these ids.
func (r *reply) splitAll(ids []int32) []int32 {
	if !r.split {
		return ids
	}
	var out []int32
	some := false
	for _, id := range ids {
		if id < bpe.FirstMerge || some && r.draw(3) > 0 {
			out = append(out, id)
			continue
		}
		some = true
		out = append(out, r.tok.Halves[id][:]...)
	}
	return out
}

// opensText reports whether a reply may begin with a letter: behind a special token or a single line break, where encoding the whole
// conversation does not merge across the border.
func opensText(tok *bpe.Tokenizer, prompt []int32) bool {
	last := prompt[len(prompt)-1]
	if bpe.IsSpecial(last) {
		return true
	}
	tail := tok.Decode(prompt[max(0, len(prompt)-2):])
	before, ok := strings.CutSuffix(tail, "\n")
	return ok && before != "" && !strings.HasSuffix(before, "\n") && !strings.HasSuffix(before, " ")
}

type instruction struct {
	think  bool
	hush   bool
	script string // the text to say, with tool call markers
}

// lastInstruction reads the last user message from the prompt's ids. Without ChatML the whole prompt is one message.
func lastInstruction(t *bpe.Tokenizer, prompt []int32) instruction {
	answered := false
	for end := len(prompt); end > 0; {
		at := lastIndex(prompt[:end], bpe.ImStart)
		if at < 0 {
			if end == len(prompt) {
				return parseInstruction(t.Decode(prompt), false)
			}
			break
		}
		role, body, _ := strings.Cut(t.Decode(prompt[at+1:end]), "\n")
		body, _, _ = strings.Cut(body, t.Special[bpe.ImEnd])
		switch role {
		case "user":
			return parseInstruction(body, answered)
		case "tool":
			if next := parseInstruction(body, answered); !answered && strings.HasPrefix(next.script, bpe.CallMark) {
				return next
			}
			answered = true
		}
		end = at
	}
	return instruction{}
}

func lastIndex(ids []int32, id int32) int {
	for i, v := range slices.Backward(ids) {
		if v == id {
			return i
		}
	}
	return -1
}

func parseInstruction(message string, toolAnswered bool) instruction {
	order := instruction{think: strings.Contains(message, "THINK"), hush: strings.Contains(message, "HUSH")}
	if _, text, ok := strings.Cut(message, "SAY "); ok {
		order.script = text
	}
	if _, call, ok := strings.Cut(message, "CALL "); ok && !toolAnswered {
		name, rest, _ := strings.Cut(call, " ")
		var arguments json.RawMessage
		if json.NewDecoder(strings.NewReader(rest)).Decode(&arguments) == nil {
			order.script = bpe.CallText(name, string(arguments))
		}
	}
	return order
}
