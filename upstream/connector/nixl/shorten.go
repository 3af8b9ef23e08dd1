package nixl

import (
	"bytes"

	"carryover/sse/rawjson"
)

// cut is what is left out of a ticket that is not used whole.
type cut struct {
	of      span   // what stands behind the last id that stays, up to the end of the list
	closing string // takes its place
}

// shorten returns the params of a ticket for its first tokens only, rounded down
// to whole blocks: remote_num_tokens is their number and remote_block_ids is cut
// to as many blocks. All other bytes stay. With tokens equal to all it returns
// p itself, partial last block included.
//
// Blocks are matched by position, so the cut is right only where position in the
// list is position in the sequence: with exactly one KV cache group, whose blocks
// are as many as the tokens fill. Anything else is a *paramsError; such a ticket
// is used whole or not at all.
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
	short.blocks = tokens / blockSize // fewer than there are, because the tokens fill those
	short.tokens = short.blocks * blockSize
	short.cut = cutBlocks(p.raw, p.at.blocks, short.blocks)
	return &short, nil
}

// cutBlocks cuts a list of ids that is flat or the only one inside another to the first n. The list has been read and has more.
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

// outputIDs returns the ids of the tokens that decode sampled, which Carryover's
// vLLM plug-in adds to the params (output_token_ids). ok is false without it.
func (p *kvParams) outputIDs() (ids []uint32, ok bool) {
	return rawjson.ParseIDs(p.output)
}
