package lmcache

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// first is prefill's answer, which has the first token of the turn's answer. Values are raw JSON.
type first struct {
	token  uint32
	body   rawjson.Object
	choice rawjson.Object // the only choice
	text   string         // text of the token, decoded
	ended  bool           // the token ended the answer, and not only the limit of one token
}

// readFirst parses prefill's answer to a leg of prompt ids. The error says why decode can't continue the answer.
func readFirst(answer upstream.PrefillAnswer, prompt int) (f first, err error) {
	if answer.PromptTokens != 0 && answer.PromptTokens != prompt {
		return f, fmt.Errorf("prefill has computed %d tokens, of a prompt of %d", answer.PromptTokens, prompt)
	}
	var ok bool
	if f.body, err = rawjson.ParseObject(answer.Body); err != nil {
		return f, fmt.Errorf("answer: %w", err)
	}
	if f.choice, ok = onlyChoice(f.body.Get("choices")); !ok {
		return f, errors.New("choices: must be one with a text")
	}
	token, ok := rawjson.ParseIDs(f.choice.Get("token_ids"))
	if !ok || len(token) != 1 {
		return f, errors.New("no first token: choices.token_ids must be one id; does prefill know return_token_ids?")
	}
	f.token = token[0]
	if f.text, ok = rawjson.Text(f.choice.Get("text")); !ok {
		return f, errors.New("choices: the text can't be read")
	}
	finish := rawjson.GetText(f.choice.Get("finish_reason"))
	if finish == "abort" || finish == "error" { // FinishReason, v1/engine/__init__.py
		return f, fmt.Errorf("prefill has ended with %q", finish)
	}
	f.ended = finish != "" && finish != "length"
	return f, nil
}

// onlyChoice returns the choice of a list with one choice. ok is false if there is another number, or if the choice has no text.
func onlyChoice(choices []byte) (choice rawjson.Object, ok bool) {
	only, more := rawjson.First(choices)
	choice, err := rawjson.ParseObject(only)
	return choice, !more && err == nil && isText(choice.Get("text"))
}

// end returns the offset in characters at which the first token ends, in the text that the logprobs refer to.
func (f *first) end() int {
	logprobs := f.choice.Get("logprobs")
	tokens, offsets := elements(logprobs, tokensMember), elements(logprobs, offsetsMember)
	if len(tokens) == 0 || len(offsets) != len(tokens) {
		return 0
	}
	last := len(tokens) - 1
	offset, _ := rawjson.Integer(offsets[last])
	return offset + utf8.RuneCountInString(rawjson.GetText(tokens[last]))
}

// handOver reads prefill's answer and decides how decode continues it.
func (a *attempt) handOver(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
	f, err := readFirst(answer, len(a.sent))
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	h := &upstream.Handover{Cached: answer.Cached, Bound: true, Rescue: a.rescue}
	switch {
	case a.begins:
		h.Leg = func([]byte) upstream.LegPlan { return a.ownLeg(a.params) }
	case f.ended || !continues(a.Request, f.text):
		// A leg without the first token would leave the last chunk.
		h.Leg, h.Left = func([]byte) upstream.LegPlan { return a.ownLeg(nil) }, true
	default:
		c := a.continuation(answer.ID, f)
		h.Leg, h.Rewrite = func([]byte) upstream.LegPlan { return a.onwardLeg(f.token) }, c
		if c.stream {
			h.Head = c.head()
		}
	}
	return h, nil
}

var errUnreadable = errors.New("the answer is not that of a text completion")

// continuation makes the client's answer from decode's answer, which continues after the first token. It belongs to one answer.
type continuation struct {
	first
	chat, stream   bool
	id             []byte // JSON, as are created, model and ids
	created, model []byte
	ids            []byte // ids of the prompt, nil unless the client wants ids
	running        bool   // the stream has its usage in each event
	prompt         int    // tokens of the prompt
	top            int    // how many of the likeliest tokens a chat shows for each token, -1 for all
}

// continuation returns the rewriting of the answer that prefill has begun.
func (a *attempt) continuation(id string, f first) *continuation {
	c := &continuation{
		first: f, chat: a.Request.API() == body.Chat, stream: a.Request.Stream(), created: f.body.Get("created"), model: f.body.Get("model"),
		top: a.top(), prompt: len(a.sent),
	}
	if id == "" {
		id = "cmpl-" + a.RequestID
	}
	if c.chat {
		id = "chatcmpl-" + strings.TrimPrefix(id, "cmpl-") // both APIs put their prefix before the request id
	}
	c.id = rawjson.Quote(id)
	if _, ok := rawjson.Integer(c.created); !ok {
		c.created = []byte("0")
	}
	if !isText(c.model) {
		c.model = rawjson.Quote(a.Request.Model())
	}
	if a.Request.WantsTokenIDs() {
		c.ids = rawjson.AppendIDs(nil, a.sent)
	}
	options, _ := a.Request.Member("stream_options")
	if o, err := rawjson.ParseObject(options); err == nil {
		c.running = a.Request.WantsUsage() && string(o.Get("continuous_usage_stats")) == "true"
	}
	if only, _ := a.Request.Member("logprob_token_ids"); !off(only) {
		c.top = -1
	}
	return c
}
