package nixl

import (
	"bytes"

	"carryover/sse/rawjson"
)

// cut is the part of the block list that is left out of a shortened ticket.
type cut struct {
	of      span   // from behind the last id that stays to the end of the list
	closing string // replaces the part
}

// shorten returns the params of a ticket for its first tokens only, rounded down
// to whole blocks: remote_num_tokens becomes their number, and remote_block_ids is
// cut to as many blocks. All other bytes stay. If tokens is the ticket's number of
// tokens, it returns p itself, with the partial last block.
//
// Blocks are matched by position, so a cut needs a list in the order of the
// sequence: exactly one KV cache group, with as many blocks as the tokens fill.
// Else the error is a *paramsError, and the ticket is used whole or not at all.
func (p *kvParams) shorten(tokens, blockSize int) (*kvParams, error) {
	if tokens == p.tokens {
		return p, nil
	}
	switch {
	case !p.ticket:
		return nil, &paramsError{"do_remote_decode", "must be true"}
	case p.groups != 1:
		return nil, &paramsError{"remote_block_ids", "cannot be cut unless there is one group"}
	case blockSize < 1 || p.blocks != (p.tokens+blockSize-1)/blockSize:
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

// cutBlocks returns the cut that keeps the first n ids of a list. The list is flat, or the only list inside another list. It has been
// parsed and has more than n ids.
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

// outputIDs returns the ids of the tokens that decode sampled. Carryover's vLLM
// plug-in adds them to the params (output_token_ids); without it ok is false.
func (p *kvParams) outputIDs() (ids []uint32, ok bool) {
	return rawjson.ParseIDs(p.output)
}
