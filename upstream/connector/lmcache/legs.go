package lmcache

import (
	"strconv"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// attempt is one attempt with what its plan has decided.
type attempt struct {
	upstream.Transfer
	budget
	begins bool     // decode gives the answer from its first token
	sent   []uint32 // the ids that prefill computes and whose KV it sends
	// salt is decode's cache_salt, JSON. With one of its own no leg finds a chunk in vLLM's prefix cache, of which LMCache is not asked
	// then: the receiver frees a chunk when it is read and never else, and one that is full stalls prefill (measured, 0.5.6: two chunks
	// stay of the second turn of a conversation). Prefill sends the whole prompt at each turn, so that nothing is computed twice. LMCache's
	// keys do not know the salt.
	salt   []byte
	params []byte // kv_transfer_params of decode's legs
	// unready says that the client's leg is to find nothing.
	unready bool
}

// prefillLeg is a text completion of the ids, for chats too: a chat would be rendered, and LMCache's keys are of ids.
func (a *attempt) prefillLeg(params []byte) upstream.LegPlan {
	var m members
	a.asText(&m, a.sent)
	if !a.begins {
		// They belong to the first token, which is part of the answer. With min_tokens no engine takes the end for it.
		if a.least > 0 {
			m.set("min_tokens", []byte("1"))
		}
		a.logprobs(&m)
	}
	m.set("return_token_ids", []byte("true")) // the first token's, without which there is no leg for decode
	m.set("kv_transfer_params", params)
	return upstream.LegPlan{API: upstream.Text, Members: m}
}

// tag are the params of the client's leg, nil if it is to find nothing.
func (a *attempt) tag() []byte {
	if a.unready {
		return nil
	}
	return a.params
}

// onwardLeg is decode's text completion of the ids and the first token, so that it finds the KV of all of them but that.
func (a *attempt) onwardLeg(first uint32, params []byte) upstream.LegPlan {
	var m members
	a.asText(&m, append(append(make([]uint32, 0, len(a.sent)+1), a.sent...), first))
	m.set("max_tokens", strconv.AppendInt(nil, int64(a.most-1), 10))
	if a.least > 0 {
		m.set("min_tokens", strconv.AppendInt(nil, int64(a.least-1), 10))
	}
	if a.Request.API() == upstream.Chat {
		a.logprobs(&m)
	}
	m.set("cache_salt", a.salt)
	m.set("kv_transfer_params", params)
	return upstream.LegPlan{API: upstream.Text, Members: m}
}

// takeLeg is decode's leg for nothing but the KV. LMCache's receiver frees a chunk when it is read, and has no other end for it
// (remove_after_retrieve, cache_engine.py; pd_backend_async.py); the last chunk is of all ids, which only a prompt with one more asks for.
func (a *attempt) takeLeg(first uint32) func([]byte) upstream.LegPlan {
	return func([]byte) upstream.LegPlan {
		plan := a.onwardLeg(first, a.params)
		plan.RequestID = a.RequestID + "-take"
		return plan
	}
}

// lateLeg is takeLeg for KV that the client's leg does not read. Any token may stand behind the ids, which only the look for the last chunk
// needs. The salt is its own: decode may have computed the prompt under the other, and a chunk that its own cache has is not read.
func (a *attempt) lateLeg(salt []byte) upstream.LegPlan {
	late := *a
	late.salt = salt
	plan := late.onwardLeg(a.sent[len(a.sent)-1], a.params)
	plan.RequestID = a.RequestID + "-late"
	return plan
}

// ownLeg is the client's own request, but for the salt and the tag.
func (a *attempt) ownLeg() upstream.LegPlan {
	var m members
	m.set("cache_salt", a.salt)
	m.set("kv_transfer_params", a.tag())
	return upstream.LegPlan{API: a.Request.API(), Members: m}
}

// asText makes a text completion of ids of the client's request.
func (a *attempt) asText(m *members, ids []uint32) {
	if a.Request.API() == upstream.Chat {
		m.remove(notOfTexts()...)
	}
	m.set("prompt", rawjson.AppendIDs(nil, ids))
}

// notOfTexts are the members of a chat request that no text completion has, or that mean something else there: what
// ChatCompletionRequest has and CompletionRequest has not, the reverse, which chats ignore, and logprobs (vLLM 0.32,
// chat_completion/protocol.py and completion/protocol.py); functions and function_call are the old names of tools and tool_choice.
func notOfTexts() []string {
	return []string{
		"messages", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "max_completion_tokens",
		"logprobs", "top_logprobs", "reasoning_effort", "include_reasoning", "add_generation_prompt", "continue_final_message",
		"add_special_tokens", "documents", "chat_template", "chat_template_kwargs", "media_io_kwargs", "mm_processor_kwargs",
		"return_prompt_text", "echo", "suffix", "prompt_embeds",
	}
}

// logprobs asks a text completion for the logprobs that the client wants.
func (a *attempt) logprobs(m *members) {
	if ids, there := a.Request.Member("logprob_token_ids"); there {
		m.set("logprob_token_ids", ids) // without logprobs a 400, which is the client's
	}
	raw, _ := a.Request.Member("logprobs")
	if a.Request.API() == upstream.Chat {
		if string(raw) != "true" {
			return
		}
		raw = strconv.AppendInt(nil, int64(a.top()), 10)
	}
	if !rawjson.IsNull(raw) {
		m.set("logprobs", raw)
	}
}

// top is how many of the likeliest tokens a chat wants to see beside each token.
func (a *attempt) top() int {
	raw, _ := a.Request.Member("top_logprobs")
	n, _ := rawjson.Integer(raw)
	return n
}

// members are those of a leg.
type members []upstream.Member

func (m *members) set(name string, value []byte) {
	*m = append(*m, upstream.Member{Name: name, Value: value})
}

func (m *members) remove(names ...string) {
	for _, name := range names {
		m.set(name, nil)
	}
}
