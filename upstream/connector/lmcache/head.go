package lmcache

import (
	"strconv"

	"carryover/sse/rawjson"
)

// head returns the beginning of a stream, as vLLM 0.32 writes it: in a chat the role, then the first token.
func (c *continuation) head() []byte {
	var choice, chunk object
	kind, logprobs := "text_completion", c.first.choice.Get("logprobs")
	choice.add("index", []byte("0"))
	if c.chat {
		var delta object
		delta.add("content", c.first.choice.Get("text"))
		choice.add("delta", delta.end())
		kind, logprobs = "chat.completion.chunk", contents(c.content(logprobs))
	} else {
		choice.add("text", c.first.choice.Get("text"))
	}
	choice.add("logprobs", logprobs)
	choice.add("finish_reason", nil)
	if !c.chat { // a chat has these in the chunk with the role, or at its end
		choice.add("stop_reason", nil)
		choice.add("prompt_token_ids", c.ids)
	}
	choice.add("token_ids", c.tokenIDs())
	c.begin(&chunk, kind, list(choice.end()))
	c.count(&chunk, 1)
	if c.chat {
		return append(event(c.role()), event(chunk.end())...)
	}
	return event(chunk.end())
}

// role returns the first chunk of a chat, which has the role.
func (c *continuation) role() []byte {
	var chunk object
	c.begin(&chunk, "chat.completion.chunk", []byte(`[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`))
	chunk.add("prompt_token_ids", c.ids)
	chunk.add("prompt_text", nil)
	c.count(&chunk, 0)
	return chunk.end()
}

// begin writes the members that all chunks have.
func (c *continuation) begin(chunk *object, kind string, choices []byte) {
	chunk.add("id", c.id)
	chunk.add("object", rawjson.Quote(kind))
	chunk.add("created", c.created)
	chunk.add("model", c.model)
	chunk.add("choices", choices)
}

// count writes the usage so far, if each chunk has it.
func (c *continuation) count(chunk *object, completion int) {
	if !c.running {
		return
	}
	var usage object
	usage.add("prompt_tokens", strconv.AppendInt(nil, int64(c.prompt), 10))
	usage.add("total_tokens", strconv.AppendInt(nil, int64(c.prompt+completion), 10))
	usage.add("completion_tokens", strconv.AppendInt(nil, int64(completion), 10))
	chunk.add("usage", usage.end())
}

// tokenIDs returns a list with the id of the first token, or nil if the client wants no ids.
func (c *continuation) tokenIDs() []byte {
	if c.ids == nil {
		return nil
	}
	return rawjson.AppendIDs(nil, []uint32{c.token})
}

// event returns the data as an event of a stream.
func event(data []byte) []byte { return append(append([]byte("data: "), oneLine(data)...), "\n\n"...) }
