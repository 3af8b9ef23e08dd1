package lmcache

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// first is prefill's answer, with the first token of the turn's answer. Values are raw JSON.
type first struct {
	token  uint32
	body   rawjson.Object
	choice rawjson.Object // the only choice
	text   string
	ended  bool // the token ended the answer, not only the limit of one token
}

// readFirst parses prefill's answer to a leg of prompt ids. The error says why decode can't continue the answer.
func readFirst(answer upstream.PrefillAnswer, prompt int) (f first, err error) {
	if answer.PromptTokens != 0 && answer.PromptTokens != prompt {
		return f, fmt.Errorf("prefill has computed %d tokens of a prompt of %d", answer.PromptTokens, prompt)
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

func onlyChoice(choices []byte) (choice rawjson.Object, ok bool) {
	only, more := rawjson.First(choices)
	choice, err := rawjson.ParseObject(only)
	return choice, !more && err == nil && isText(choice.Get("text"))
}

// end returns the offset in characters at which the first token ends, in the text of the logprobs.
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
