package convcache

// Growing is the chain of a turn while its output is being sampled: hashes of the complete blocks, and less than two
// blocks of ids. For a prompt of 16,000 tokens it takes 8 kB, where the ids as JSON take 100. It belongs to one turn
// and is not safe for concurrent use.
type Growing struct {
	key    ChainKey
	size   int // of a block as decode has it, 0 if unknown
	step   int // ids per hash
	blocks []uint64
	last   uint64 // hash of all that is not in tail
	hashed int    // ids that last covers
	// tail holds the ids after that, at most a block. A full block is hashed only when a further id comes, because
	// remote_num_tokens may leave the last id out.
	tail []uint32
}

// outputBlocks is for how many blocks of output memory is allocated at first.
const outputBlocks = 16

// Grow returns the chain of a prompt, to which output is added as it comes. A blockSize of 0 means unknown.
func (k ChainKey) Grow(prompt []uint32, blockSize int) *Growing { return k.IDs(prompt).Grow(blockSize) }

// Grow returns the chain of these ids, to which output is added as it comes. It reuses the hashes that an offer has
// computed. A blockSize of 0 means unknown.
func (p *IDs) Grow(blockSize int) *Growing {
	step := blockStep(max(blockSize, 0))
	g := &Growing{key: p.key, size: blockSize, step: step, tail: make([]uint32, 0, step)}
	if blockSize > 0 {
		g.blocks = make([]uint64, 0, len(p.ids)/step+outputBlocks)
	}
	for i := range p.hashed {
		if known := p.hashed[i]; known.step == step && len(p.ids) > 0 {
			// The last id may turn out not to be part of the chain.
			g.take(known.hashes[:min(len(known.hashes), (len(p.ids)-1)/step)])
		}
	}
	g.Add(p.ids[g.hashed:])
	return g
}

// take takes hashes over that are the beginning of the chain.
func (g *Growing) take(hashes []uint64) {
	g.hashed, g.last = len(hashes)*g.step, lastOf(hashes)
	if g.size > 0 {
		g.blocks = append(g.blocks, hashes...)
	}
}

// Add appends ids. It keeps none of the slice.
func (g *Growing) Add(ids []uint32) {
	for len(ids) > 0 {
		if len(g.tail) == g.step {
			g.seal(g.tail)
			g.tail = g.tail[:0]
		}
		if len(g.tail) == 0 && len(ids) > g.step {
			g.seal(ids[:g.step])
			ids = ids[g.step:]
			continue
		}
		n := min(g.step-len(g.tail), len(ids))
		g.tail = append(g.tail, ids[:n]...)
		ids = ids[n:]
	}
}

// seal hashes a block.
func (g *Growing) seal(block []uint32) {
	g.last = sipHash(g.key, g.last, block, false)
	if g.size > 0 {
		g.blocks = append(g.blocks, g.last)
	}
	g.hashed += g.step
}

// Len returns the number of ids so far.
func (g *Growing) Len() int { return g.hashed + len(g.tail) }

// Bytes returns the memory that it takes.
func (g *Growing) Bytes() int { return 8*cap(g.blocks) + 4*cap(g.tail) }

// Chain ends the growth and returns the chain of what decode holds. It reports false unless tokens, decode's
// remote_num_tokens, is the number of all ids or one less: the last sampled token has KV only if a further step was
// under way when the request ended (vLLM's NixlConnector reports num_computed_tokens). Any other number means that
// decode counted something that the caller has not seen.
func (g *Growing) Chain(tokens int) (Chain, bool) {
	all := g.Len()
	if tokens <= 0 || tokens != all && tokens != all-1 || g.size < 0 {
		return Chain{}, false
	}
	g.tail = g.tail[:len(g.tail)-(all-tokens)]
	if len(g.tail) == g.step {
		g.seal(g.tail)
		g.tail = g.tail[:0]
	}
	return Chain{BlockSize: g.size, Blocks: g.blocks, Whole: sipHash(g.key, g.last, g.tail, true), Tokens: tokens}, true
}
