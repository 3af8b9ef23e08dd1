package convcache

// Offer says how much of a ticket a request may use. The zero Offer means nothing.
type Offer struct {
	// Tokens is the remote_num_tokens to send: all of the ticket's, or whole blocks.
	Tokens int
	// Whole means that the ticket may be sent unchanged, with its last partial block.
	Whole bool
}

// IDs are the token ids of one prompt, for comparison with branches. Each id is hashed at most once per block size, and only as far as some
// branch agrees. IDs are not safe for concurrent use.
type IDs struct {
	key    ChainKey
	ids    []uint32
	hashed []hashedIDs // the branches of one conversation nearly always have one block size
}

type hashedIDs struct {
	step   int // ids per hash
	hashes []uint64
}

// IDs returns a prompt's ids for comparison. They must not change while it is in use.
func (k ChainKey) IDs(ids []uint32) *IDs { return &IDs{key: k, ids: ids} }

func (p *IDs) by(step int) *hashedIDs {
	for i := range p.hashed {
		if p.hashed[i].step == step {
			return &p.hashed[i]
		}
	}
	p.hashed = append(p.hashed, hashedIDs{step: step, hashes: make([]uint64, 0, len(p.ids)/step)})
	return &p.hashed[len(p.hashed)-1]
}

// Offer returns how much of a branch's ticket may serve a prompt with these ids: all of it if the prompt begins with all its ids, else the
// longest run of equal full blocks. It offers nothing if the chain does not cover exactly the branch's tokens.
//
// The prompt may be as long as the offer, as when a turn is regenerated at a block border: the scheduler drops one token of what was read
// and computes it again (v1/core/sched/scheduler.py _update_waiting_for_remote_kv, 0.32). A shorter prompt gets nothing: vLLM would cut
// the tokens but not the list of blocks, and read the last blocks into the first places (nixl/base_worker.py _apply_prefix_caching, 0.32).
func (p *IDs) Offer(b Branch) Offer {
	if b.Chain.Tokens != b.Tokens {
		return Offer{}
	}
	return p.offer(b.Chain)
}

// offer stops at the first block that differs. It offers a chain that contradicts itself no further than its hashes agree.
func (p *IDs) offer(c Chain) Offer {
	if c.Tokens <= 0 || c.BlockSize < 0 {
		return Offer{}
	}
	step := blockStep(c.BlockSize)
	full := min(c.Tokens, len(p.ids)) / step
	matched := p.matching(c.Blocks[:min(full, len(c.Blocks))], step)
	covered := c.Tokens <= len(p.ids) && (c.BlockSize == 0 || matched == full)
	if covered && c.Whole == p.whole(c.Tokens, step) {
		return Offer{Tokens: c.Tokens, Whole: true}
	}
	return Offer{Tokens: matched * c.BlockSize}
}

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

func (p *IDs) whole(tokens, step int) uint64 {
	full := tokens / step
	known := p.by(step)
	for len(known.hashes) < full {
		p.extend(known)
	}
	return sipHash(p.key, lastOf(known.hashes[:full]), p.ids[full*step:tokens], true)
}

func (p *IDs) extend(known *hashedIDs) {
	at := len(known.hashes) * known.step
	known.hashes = append(known.hashes, sipHash(p.key, lastOf(known.hashes), p.ids[at:at+known.step], false))
}

// lastOf returns the last hash, or 0: every chain begins with 0.
func lastOf(hashes []uint64) uint64 {
	if len(hashes) == 0 {
		return 0
	}
	return hashes[len(hashes)-1]
}
