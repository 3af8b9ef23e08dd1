package api

import (
	"encoding/json"
	"strings"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/wire"
)

// tokenLogprob is the invented probability of a sampled token, in the shape of chat logprobs.
type tokenLogprob struct {
	Token       string       `json:"token"`
	Logprob     float64      `json:"logprob"`
	Bytes       []int        `json:"bytes"`
	TopLogprobs []topLogprob `json:"top_logprobs"`
}

type topLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

type textLogprobList struct {
	TextOffset    []int                `json:"text_offset"`
	TokenLogprobs []float64            `json:"token_logprobs"`
	Tokens        []string             `json:"tokens"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
}

// logprob invents numbers for id and its alternatives. The sampled token is the likeliest.
func logprob(t *bpe.Tokenizer, id int32, alternatives int) tokenLogprob {
	l := tokenLogprob{TopLogprobs: []topLogprob{}, Logprob: -float64(id%97+1) / 128}
	l.Token, l.Bytes = tokenText(t, id)
	for n := range alternatives {
		other := (int(id) + n*31) % len(t.Bytes)
		text, bytes := tokenText(t, int32(other))
		l.TopLogprobs = append(l.TopLogprobs, topLogprob{Token: text, Logprob: l.Logprob - float64(n), Bytes: bytes})
	}
	return l
}

func tokenText(t *bpe.Tokenizer, id int32) (text string, bytes []int) {
	for _, b := range []byte(t.Bytes[id]) {
		bytes = append(bytes, int(b))
	}
	return strings.ToValidUTF8(t.Bytes[id], "\uFFFD"), bytes
}

// logprobs returns a list of tokens. In a text completion it has the place of each token in its text.
func (c *completion) logprobs(list []tokenLogprob, offset int) json.RawMessage {
	if c.request.Alternatives < 0 {
		return wire.Null
	}
	if c.chat {
		return wire.RawJSON(map[string]any{"content": list})
	}
	var out textLogprobList
	for _, l := range list {
		out.TextOffset = append(out.TextOffset, offset)
		out.TokenLogprobs = append(out.TokenLogprobs, l.Logprob)
		out.Tokens = append(out.Tokens, l.Token)
		top := map[string]float64{l.Token: l.Logprob}
		for _, t := range l.TopLogprobs {
			top[t.Token] = t.Logprob
		}
		out.TopLogprobs = append(out.TopLogprobs, top)
		offset += len([]rune(l.Token))
	}
	return wire.RawJSON(out)
}
