package nixl

import (
	"bytes"
	"strconv"

	"carryover/sse/rawjson"
)

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
	case p.groups != 1:
		return nil, &paramsError{"remote_block_ids", "cannot be cut unless there is one group"}
	case blockSize < 1 || p.blocks != (p.tokens+blockSize-1)/blockSize:
		return nil, &paramsError{"remote_block_ids", "does not hold as many blocks as the tokens fill"}
	case tokens > p.tokens || tokens < blockSize:
		return nil, &paramsError{"remote_num_tokens", "cannot be cut to nothing or to more than there is"}
	}
	blocks := tokens / blockSize
	var changes rawjson.Edits
	changes.Set("remote_num_tokens", strconv.AppendInt(nil, int64(blocks*blockSize), 10))
	changes.Set("remote_block_ids", cutBlocks(p.body.Get("remote_block_ids"), blocks))
	return parseTicket(p.body.Rewrite(changes))
}

// cutBlocks returns the first n ids of a list of ids that is flat or the only one
// inside another. The list has been read and has more ids than n.
func cutBlocks(raw []byte, n int) []byte {
	s := rawjson.Scanner{Data: raw}
	closing := "]"
	_, _ = s.Open('[')
	if more, err := s.Open('['); more && err == nil {
		closing = "]]"
	}
	var buf [512]uint32
	for n > 0 {
		read, _, _ := s.ReadIDs(buf[:min(n, len(buf))])
		n -= read
	}
	cut := bytes.TrimRight(raw[:s.Pos], ", \t\r\n") // the comma behind the last id that stays
	return append(bytes.Clone(cut), closing...)
}

// outputIDs returns the ids of the tokens that decode sampled, which Carryover's
// vLLM plug-in adds to the params (output_token_ids). ok is false without it.
func (p *kvParams) outputIDs() (ids []uint32, ok bool) {
	return rawjson.ParseIDs(p.body.Get("output_token_ids"))
}
