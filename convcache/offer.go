package convcache

// Offer says how much of a ticket a request may use. The zero Offer means nothing.
type Offer struct {
	// Tokens is the remote_num_tokens that may be sent: all of the ticket's, or whole blocks.
	Tokens int
	// Whole says that the ticket may be sent unchanged, with its last partial block.
	Whole bool
}

// IDs are the token ids of one prompt, with which the branches of its conversation are compared. Each id is hashed at
// most once per block size, and only as far as some branch agrees. An IDs belongs to one turn and is not safe for
// concurrent use.
type IDs struct {
	key    ChainKey
	ids    []uint32
	hashed []hashedIDs // hashed as far as was needed; the branches of one conversation nearly always have one block size
}

// hashedIDs are the hashes of the beginning of a prompt.
type hashedIDs struct {
	step   int // ids per hash
	hashes []uint64
}

// IDs returns a prompt's ids for comparison. They must not change while it is in use.
func (k ChainKey) IDs(ids []uint32) *IDs { return &IDs{key: k, ids: ids} }

// by returns the hashes that cover step ids each.
func (p *IDs) by(step int) *hashedIDs {
	for i := range p.hashed {
		if p.hashed[i].step == step {
			return &p.hashed[i]
		}
	}
	p.hashed = append(p.hashed, hashedIDs{step: step, hashes: make([]uint64, 0, len(p.ids)/step)})
	return &p.hashed[len(p.hashed)-1]
}

// Offer returns how much of a branch's ticket may serve as KV of a prompt with these ids: all of it if the prompt begins
// with all its ids, else the longest run of full blocks that the prompt begins with. A partial block is part of a whole
// ticket or not offered at all. Nothing is offered of a branch whose chain does not cover exactly its tokens.
//
// The prompt may be exactly as long as what is offered, as it is when a turn is regenerated at a
// block border. It must not be shorter: vLLM would cut the tokens to the prompt's length, keep the
// list of blocks, and read the last of them into the first places (nixl/base_worker.py
// _apply_prefix_caching, 0.32). At equal length the scheduler takes one token off what was read and
// computes it again, to have something to sample from (v1/core/sched/scheduler.py
// _update_waiting_for_remote_kv, 0.32); that is what decode does with every hand-over, which always
// covers its whole prompt.
func (p *IDs) Offer(b Branch) Offer {
	if b.Chain.Tokens != b.Tokens {
		return Offer{}
	}
	return p.offer(b.Chain)
}

// offer compares hashes and stops at the first block that differs. A chain that contradicts itself, which a store
// might return, is offered no further than its hashes agree.
func (p *IDs) offer(c Chain) Offer {
	if c.Tokens <= 0 || c.BlockSize < 0 {
		return Offer{}
	}
	step := blockStep(c.BlockSize)
	full := min(c.Tokens, len(p.ids)) / step
	matched := 0
	if c.BlockSize > 0 {
		matched = p.matching(c.Blocks[:min(full, len(c.Blocks))], step)
	}
	covered := c.Tokens <= len(p.ids) && (c.BlockSize == 0 || matched == full)
	if covered && c.Whole == p.whole(c.Tokens, step) {
		return Offer{Tokens: c.Tokens, Whole: true}
	}
	return Offer{Tokens: matched * c.BlockSize}
}

// matching returns how many of the hashes, from the first on, equal the prompt's hashes.
func (p *IDs) matching(want []uint64, step int) int {
	known := p.by(step)
	for n := range want {
		if n == len(known.hashes) {
			p.extend(known)
		}
		if known.hashes[n] != want[n] {
			return n
		}
	}
	return len(want)
}

// whole returns Chain.Whole for the first tokens ids.
func (p *IDs) whole(tokens, step int) uint64 {
	full := tokens / step
	known := p.by(step)
	for len(known.hashes) < full {
		p.extend(known)
	}
	return sipHash(p.key, lastOf(known.hashes[:full]), p.ids[full*step:tokens], true)
}

// extend hashes the next block.
func (p *IDs) extend(known *hashedIDs) {
	at := len(known.hashes) * known.step
	known.hashes = append(known.hashes, sipHash(p.key, lastOf(known.hashes), p.ids[at:at+known.step], false))
}

// lastOf returns the last hash, or 0 if there is none: every chain begins with 0.
func lastOf(hashes []uint64) uint64 {
	if len(hashes) == 0 {
		return 0
	}
	return hashes[len(hashes)-1]
}
