package api

import (
	"encoding/json"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

// kvParams returns the params of the whole answer: from the last child of n > 1, or from the first prompt of a list. The blocks of the others
// stay pinned until their deadline (vllm#43509).
func (c *completion) kvParams() *engine.ParamsOut {
	if len(c.prompts) > 1 {
		return c.choices[0].params
	}
	return c.choices[len(c.choices)-1].params
}

func (c *completion) answeredParams() *engine.ParamsOut {
	p := c.kvParams()
	if p == nil || p.Other != nil || !c.endpoints.config().OutputTokenIDs {
		return p
	}
	with := *p
	with.OutputTokenIDs = c.choices[len(c.choices)-1].told
	return &with
}

func (c *completion) usage() usage {
	var u usage
	for _, ch := range c.choices {
		u.CompletionTokens += len(ch.ids)
	}
	for _, prompt := range c.prompts {
		u.PromptTokens += len(prompt)
	}
	u = c.counted(u)
	if c.endpoints.config().PromptTokensDetails {
		u.PromptDetails = c.promptDetails()
	}
	return u
}

// continuous returns the usage of one choice so far, without cached tokens (chat_completion and completion/serving.py, 0.32).
func (c *completion) continuous(ch *choice) usage {
	return c.counted(usage{PromptTokens: len(ch.prompt), CompletionTokens: len(ch.ids)})
}

func (c *completion) counted(u usage) usage {
	if c.fault.Is(fault.OtherUsage) {
		u.PromptTokens++
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// promptDetails reports cached tokens as 0.32 does: prefill's own number if a leg forwards it, otherwise what this engine found in its prefix
// cache and read from others. Text completions leave created_cache_tokens null.
func (c *completion) promptDetails() *promptDetails {
	d := &promptDetails{}
	created := 0
	for _, ch := range c.choices {
		if ch.run == nil {
			continue
		}
		cached := ch.run.CachedTokens()
		size := c.engine.Cfg.BlockSize
		created += max(0, len(ch.prompt)/size*size-cached)
		d.CachedTokens += cached
	}
	if cached, ok := c.request.Params.Integer("remote_prefill_cached_tokens"); ok && c.request.Params.Decodes() {
		d.CachedTokens = cached
	}
	if c.chat {
		d.CreatedCacheTokens = &created
	}
	return d
}

func (c *completion) params() json.RawMessage {
	f, p := c.fault, c.answeredParams()
	switch {
	case f.Is(fault.BadParams) && f.Params != nil:
		return f.Params
	case f.Is(fault.BadParams):
		return json.RawMessage(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[1,2],"remote_engine_id":"bad","remote_host":"127.0.0.1","remote_port":"x","remote_num_tokens":"many"}`)
	case p == nil:
		return wire.Null
	case f.Is(fault.NullParams):
		c.engine.Unpin(p.RemoteRequestID) // no effect for connectors that pin under another id
		return wire.Null
	default:
		return wire.RawJSON(p.Object())
	}
}

func (c *completion) answer() answer {
	cfg := c.endpoints.config()
	a := answer{
		ID: c.id, Object: "text_completion", Created: c.created, Model: cfg.Answered(c.request.Model),
		SystemFingerprint: cfg.Fingerprint(), Usage: c.usage(), KVTransferParams: c.params(),
	}
	if c.chat {
		a.Object, a.PromptLogprobs, a.PromptTokenIDs, a.PromptText = "chat.completion", wire.Null, c.idEcho(c.prompts[0]), wire.Null
	}
	for _, ch := range c.choices {
		w := wholeChoice{Index: ch.index, Logprobs: c.logprobs(ch.logprobs, 0), FinishReason: ch.finish, StopReason: ch.stopReason, WeightVersions: cfg.NullSince033()}
		if c.request.ReturnTokenIDs {
			w.TokenIDs = ch.told
		}
		if c.chat {
			w.Message = ch.message()
		} else {
			text := ch.out.content.String()
			if c.request.Echo {
				text = c.endpoints.tok.Decode(ch.prompt) + text
			}
			w.Text, w.PromptLogprobs, w.PromptTokenIDs = &text, wire.Null, c.idEcho(ch.prompt)
		}
		a.Choices = append(a.Choices, w)
	}
	return a
}

func (ch *choice) message() *chatMessage {
	m := &chatMessage{Role: "assistant", ToolCalls: ch.out.calls}
	content := ch.out.content.String()
	reasoning := ch.out.reasoning.String()
	if reasoning != "" {
		m.Reasoning = &reasoning
	}
	if content != "" || len(m.ToolCalls) == 0 && reasoning == "" {
		m.Content = &content
	}
	return m
}

func (c *completion) idEcho(prompt []int32) json.RawMessage {
	if !c.request.ReturnTokenIDs || c.fault.Is(fault.NoIDEcho) {
		return wire.Null
	}
	return wire.RawJSON(prompt)
}
