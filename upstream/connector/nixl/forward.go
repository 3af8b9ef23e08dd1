package nixl

import (
	"slices"
	"strconv"

	"carryover/sse/rawjson"
)

// edit says what changes in params on their way from one engine to the next.
type edit struct {
	// Host replaces remote_host; "" keeps the engine's.
	Host string
	// Release offers no token of a ticket: with remote_num_tokens 0 prefill reads
	// nothing and its notification makes decode free the blocks (pull_scheduler.py).
	Release bool
	// PromptIDs is the id list that a chat leg uses instead of rendering its
	// messages (prompt_token_ids, vLLM 0.28); nil lets it render.
	PromptIDs []byte
}

// forward returns the params for the leg that gets them, bit for bit but for the
// edit and for token ids. output_token_ids come from our own plug-in and are for
// the proxy; prompt_token_ids of another turn, which no engine sends back today,
// would make the next leg compute that turn's prompt instead of its own. The
// flags are right already: the parsers accept nothing else. What it returns is not
// to be changed: without an edit it is the text that was parsed.
func (p *kvParams) forward(e edit) []byte {
	var buffer [3]replacement
	changes := buffer[:0]
	at := p.at
	var host []byte
	if e.Host != "" && e.Host != p.host {
		if host = rawjson.Quote(e.Host); at.host.to > 0 {
			changes, host = append(changes, replacement{at.host, host}), nil
		}
	}
	switch {
	case e.Release:
		changes = append(changes, replacement{at.tokens, []byte("0")})
	case p.cut.closing != "":
		changes = append(changes, replacement{at.tokens, strconv.AppendInt(nil, int64(p.tokens), 10)}, replacement{p.cut.of, []byte(p.cut.closing)})
	}
	if len(changes) == 0 && e.PromptIDs == nil && host == nil {
		return p.raw
	}
	slices.SortFunc(changes, func(a, b replacement) int { return int(a.of.from) - int(b.of.from) })
	size := len(p.raw) + len(`,"prompt_token_ids":,"remote_host":`) + len(e.PromptIDs) + len(host)
	for _, c := range changes {
		size += len(c.by)
	}
	out, kept := make([]byte, 0, size), uint32(0)
	for _, c := range changes {
		out = append(append(out, p.raw[kept:c.of.from]...), c.by...)
		kept = c.of.to
	}
	out = append(out, p.raw[kept:at.end]...)
	if e.PromptIDs != nil {
		out = append(append(out, `,"prompt_token_ids":`...), e.PromptIDs...)
	}
	if host != nil {
		out = append(append(out, `,"remote_host":`...), host...)
	}
	return append(out, p.raw[at.end:]...)
}

// replacement takes the place of a part of the params.
type replacement struct {
	of span
	by []byte
}

// strip takes parts out for good, none of which is the first member or one that is looked at later.
func (p *kvParams) strip(parts []span) {
	if len(parts) == 0 {
		return
	}
	raw, kept := make([]byte, 0, len(p.raw)), uint32(0)
	for _, part := range parts {
		raw, kept = append(raw, p.raw[kept:part.from]...), part.to
	}
	p.raw = append(raw, p.raw[kept:]...)
	before := func(at uint32) (less uint32) {
		for _, part := range parts {
			if part.to <= at {
				less += part.to - part.from
			}
		}
		return less
	}
	for _, moved := range [...]*span{&p.at.host, &p.at.tokens, &p.at.blocks} {
		less := before(moved.from)
		moved.from, moved.to = moved.from-less, moved.to-less
	}
	p.at.end -= before(p.at.end)
}

// templateParams returns the params of a prefill leg without a ticket, as vLLM's
// example proxies send them: the two flags decide, the rest is null.
func templateParams() []byte {
	return []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)
}
