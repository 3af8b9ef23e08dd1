package nixl

import (
	"bytes"
	"slices"
	"strconv"

	"carryover/sse/rawjson"
)

type edit struct {
	// Host replaces remote_host; "" keeps the engine's.
	Host string
	// Release sets remote_num_tokens to 0: prefill then reads nothing of the ticket, and its notification makes decode free the
	// blocks (pull_scheduler.py).
	Release bool
	// PromptIDs is the id list that the engine computes instead of rendering the messages of a chat leg (prompt_token_ids, vLLM
	// 0.28). With nil it renders them.
	PromptIDs []byte
}

// forward returns the params for the next leg, bit for bit except for the edit and for two lists of token ids, which the parser has
// removed: output_token_ids come from Carryover's plug-in and are for the proxy; prompt_token_ids of another turn, which no engine
// sends back today, would make the next leg compute that turn's prompt. The flags need no edit: the parsers accept only the right
// ones. The caller must not change the result: without an edit it is the parsed text itself.
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

type replacement struct {
	of span
	by []byte
}

type cut struct {
	of      span   // from behind the last id that stays to the end of the list
	closing string // replaces the part
}

// shorten returns a ticket's params for its first tokens only, rounded down to whole blocks: remote_num_tokens becomes their number,
// and remote_block_ids is cut to as many blocks. All other bytes stay. With all of the ticket's tokens it returns p itself, with the
// partial last block.
//
// Blocks are matched by position, so a cut needs a list in the order of the sequence: exactly one KV cache group, with as many blocks
// as the tokens fill. Else the error is a *paramsError, and the ticket is used whole or not at all.
func (p *kvParams) shorten(tokens, blockSize int) (*kvParams, error) {
	if tokens == p.tokens {
		return p, nil
	}
	switch {
	case !p.ticket:
		return nil, &paramsError{"do_remote_decode", "must be true"}
	case p.groups != 1:
		return nil, &paramsError{"remote_block_ids", "cannot be cut unless there is one group"}
	case blockSize < 1 || p.misplaced(blockSize) != nil:
		return nil, &paramsError{"remote_block_ids", "does not hold as many blocks as the tokens fill"}
	case tokens > p.tokens || tokens < blockSize:
		return nil, &paramsError{"remote_num_tokens", "cannot be cut to nothing or to more than there is"}
	}
	short := *p
	short.blocks = tokens / blockSize // fewer than p.blocks, because p.tokens fill p.blocks
	short.tokens = short.blocks * blockSize
	short.cut = cutBlocks(p.raw, p.at.blocks, short.blocks)
	return &short, nil
}

// cutBlocks keeps the first n ids of a list, flat or the only one inside another, that was parsed and has more.
func cutBlocks(raw []byte, list span, n int) cut {
	ids := raw[list.from:list.to]
	s := rawjson.Scanner{Data: ids}
	closing := "]"
	_, _ = s.Open('[')
	if s.Peek() == '[' {
		closing = "]]"
	}
	left := bytes.TrimRight(ids[:rawjson.AfterInts(ids, n)], " \t\r\n")
	return cut{span{list.from + uint32(len(left)), list.to}, closing}
}
