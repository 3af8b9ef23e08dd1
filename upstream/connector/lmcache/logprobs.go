package lmcache

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"carryover/sse/rawjson"
)

// The lists of a text completion's logprobs (CompletionLogProbs, completion/protocol.py). Each has one element for each token.
const (
	offsetsMember = "text_offset"
	tokensMember  = "tokens"
	valuesMember  = "token_logprobs"
	topMember     = "top_logprobs"
)

// unlikely is what vLLM writes for a logprob that it does not have (ChatCompletionLogProb, chat_completion/protocol.py).
const unlikely = "-9999.0"

func (c *continuation) logprobs(raw []byte) []byte {
	before := c.first.choice.Get("logprobs")
	if c.chat {
		return contents(joined(c.content(before), c.content(raw)))
	}
	raw = c.shifted(raw)
	a, err := rawjson.ParseObject(before)
	if err != nil {
		return raw
	}
	b, err := rawjson.ParseObject(raw)
	if err != nil {
		return raw
	}
	var o object
	for name, value := range b.Members() {
		switch string(name) {
		case offsetsMember, tokensMember, valuesMember, topMember:
			value = joined(a.Get(string(name)), value)
		}
		o.add(string(name), value)
	}
	return o.end()
}

// shifted adds the length of the first token to the offsets in a text completion's logprobs. Offsets count characters from the beginning
// of the answer (_create_completion_logprobs, completion/serving.py).
func (c *continuation) shifted(raw []byte) []byte {
	o, err := rawjson.ParseObject(raw)
	if err != nil || !isList(o.Get(offsetsMember)) {
		return raw
	}
	by := c.end()
	var moved [][]byte
	for offset := range rawjson.Elements(o.Get(offsetsMember)) {
		if n, ok := rawjson.Integer(offset); ok {
			offset = strconv.AppendInt(nil, int64(n+by), 10)
		}
		moved = append(moved, offset)
	}
	var edits rawjson.Edits
	edits.Set(offsetsMember, list(moved...))
	return o.Rewrite(edits)
}

func contents(content []byte) []byte {
	if !isList(content) {
		return nil
	}
	return withContent(content)
}

func withContent(content []byte) []byte { return fmt.Appendf(nil, `{"content":%s}`, content) }

// content returns the list of tokens with their logprobs, nil for none. A text completion lists one token more than it was asked for, the
// sampled one first. A chat takes its number of tokens from the beginning of the same list.
func (c *continuation) content(raw []byte) []byte {
	if rawjson.Kind(raw) != '{' {
		return nil
	}
	values, tops := elements(raw, valuesMember), elements(raw, topMember)
	var content [][]byte
	for i, token := range elements(raw, tokensMember) {
		var value, top []byte
		if i < len(values) {
			value = values[i]
		}
		if i < len(tops) {
			top = tops[i]
		}
		o := entry(token, value)
		o.add(topMember, c.likeliest(top))
		content = append(content, o.end())
	}
	return list(content...)
}

func elements(logprobs []byte, name string) [][]byte {
	return slices.Collect(rawjson.Elements(rawjson.Get(logprobs, name)))
}

func (c *continuation) likeliest(top []byte) []byte {
	var out [][]byte
	for m, value := range rawjson.Members(top) {
		if len(out) == c.top {
			break
		}
		o := entry(top[m.Start:m.Start+len(m.Key)+len(`""`)], value)
		out = append(out, o.end())
	}
	return list(out...)
}

func entry(token, value []byte) (o object) {
	if !isText(token) {
		token = []byte(`""`)
	}
	if kind := rawjson.Kind(value); kind != '-' && kind-'0' > 9 {
		value = []byte(unlikely)
	}
	o.add("token", token)
	o.add("logprob", value)
	o.add("bytes", textBytes(token))
	return o
}

func textBytes(raw []byte) []byte {
	text, ok := rawjson.Text(raw)
	if !ok {
		return nil
	}
	return bytes.ReplaceAll(fmt.Append(nil, []byte(text)), []byte(" "), []byte(","))
}
