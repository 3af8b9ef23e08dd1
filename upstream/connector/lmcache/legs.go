package lmcache

import (
	"strconv"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

type attempt struct {
	upstream.Transfer
	budget
	begins bool     // decode gives the answer from its beginning
	sent   []uint32 // the ids that prefill computes and whose KV it sends
	// salt is decode's cache_salt, JSON, and no other attempt has it. vLLM reads no chunk from LMCache that its own prefix cache has, the
	// receiver frees a chunk only when it is read, and a full receiver stalls prefill (measured, 0.5.6: without the salt two chunks of a
	// conversation's second turn stay). With a fresh salt every chunk is read. Nothing is computed twice, because prefill sends the whole
	// prompt at each turn. LMCache's keys do not contain the salt.
	salt   []byte
	params []byte // kv_transfer_params of decode's legs
}

// prefillLeg returns a text completion of the ids, also for chats: prefill would render a chat, and LMCache's keys are hashes of ids.
func (a *attempt) prefillLeg(params []byte) upstream.LegPlan {
	var m members
	a.asText(&m, a.sent)
	if !a.begins {
		// The first token is part of the answer, so it needs the client's logprobs, and min_tokens keeps it from ending the answer.
		if a.least > 0 {
			m.set("min_tokens", []byte("1"))
		}
		a.logprobs(&m)
	}
	m.set("return_token_ids", []byte("true")) // decode's leg needs the id of the first token
	m.set("kv_transfer_params", params)
	return upstream.LegPlan{API: body.Text, Members: m}
}

// onwardLeg returns decode's text completion of the ids and the first token. Decode looks for the KV of all ids before the first token.
func (a *attempt) onwardLeg(first uint32) upstream.LegPlan {
	var m members
	a.asText(&m, withLast(a.sent, first))
	m.set("max_tokens", strconv.AppendInt(nil, int64(a.most-1), 10))
	if a.least > 0 {
		m.set("min_tokens", strconv.AppendInt(nil, int64(a.least-1), 10))
	}
	if a.Request.API == body.Chat {
		a.logprobs(&m)
	}
	m.set("cache_salt", a.salt)
	m.set("kv_transfer_params", a.params)
	return upstream.LegPlan{API: body.Text, Members: m}
}

// rescue returns the members of a decode leg that only reads the KV, so that LMCache's receiver frees it (remove_after_retrieve,
// cache_engine.py; pd_backend_async.py). The last chunk reaches up to the last id, so only a prompt with one more id, any one, asks for
// it.
func (a *attempt) rescue() []body.Member {
	var m members
	m.set("prompt", rawjson.AppendIDs(nil, withLast(a.sent, a.sent[len(a.sent)-1])))
	m.set("kv_transfer_params", a.params)
	return m
}

func withLast(ids []uint32, last uint32) []uint32 {
	return append(append(make([]uint32, 0, len(ids)+1), ids...), last)
}

// ownLeg returns the client's own request. With nil params the leg finds no chunk.
func (a *attempt) ownLeg(params []byte) upstream.LegPlan {
	var m members
	m.set("cache_salt", a.salt)
	m.set("kv_transfer_params", params)
	return upstream.LegPlan{API: a.Request.API, Members: m}
}

func (a *attempt) asText(m *members, ids []uint32) {
	if a.Request.API == body.Chat {
		for _, name := range notOfTexts() {
			m.set(name, nil)
		}
	}
	m.set("prompt", rawjson.AppendIDs(nil, ids))
}

// notOfTexts returns the members that are removed when a chat becomes a text completion: members that only ChatCompletionRequest has,
// members that only CompletionRequest has (a chat ignores them), and logprobs, which has another meaning there (vLLM 0.32,
// chat_completion/protocol.py and completion/protocol.py). functions and function_call are the old names of tools and tool_choice.
func notOfTexts() []string {
	return []string{
		"messages", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "max_completion_tokens",
		"logprobs", "top_logprobs", "reasoning_effort", "include_reasoning", "add_generation_prompt", "continue_final_message",
		"add_special_tokens", "documents", "chat_template", "chat_template_kwargs", "media_io_kwargs", "mm_processor_kwargs",
		"return_prompt_text", "echo", "suffix", "prompt_embeds",
	}
}

func (a *attempt) logprobs(m *members) {
	if ids := a.Request.Member("logprob_token_ids"); ids != nil {
		m.set("logprob_token_ids", ids) // without logprobs the engine answers 400, and the client gets this error
	}
	raw := a.Request.Member("logprobs")
	if a.Request.API == body.Chat {
		if string(raw) != "true" {
			return
		}
		raw = strconv.AppendInt(nil, int64(a.top()), 10)
	}
	if !rawjson.IsNull(raw) {
		m.set("logprobs", raw)
	}
}

func (a *attempt) top() int {
	n, _ := rawjson.Integer(a.Request.Member("top_logprobs"))
	return n
}

type members []body.Member

func (m *members) set(name string, value []byte) {
	*m = append(*m, body.Member{Name: name, Value: value})
}
