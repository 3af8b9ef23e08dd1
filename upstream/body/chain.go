package body

import "hash/maphash"

// A chain has a hash for each KiB of the beginning of a prompt, up to MaxChain: 128 KiB are some 32,000 tokens, and
// take 15 µs to hash.
const (
	MaxChain   = 128
	ChainPiece = 1 << 10
)

// Chain returns one hash per full piece of the beginning of the client's prompt, each over everything up to the
// piece's end: two requests with an equal hash begin alike up to there, and an engine that has computed one has the
// other's beginning in its prefix cache. The model, the cache salt and the tools, which templates print before the
// messages, belong to the beginning. The bytes of the request are hashed, so a client that writes the same JSON
// differently is not recognised; the hashes help to pick an instance and prove nothing. The chain is nil for prompts
// of less than a piece.
//
// The seed is random per process, so no client can make its prompts look like those of others.
func (p Prompt) Chain(seed maphash.Seed) []uint64 {
	parts := p.parts()
	n := min(p.Bytes()/ChainPiece, MaxChain)
	if n == 0 {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.Write(p.body.Get("model")) // a hash never fails
	_ = h.WriteByte(apart)
	_, _ = h.Write(p.body.Get("cache_salt"))
	chain := make([]uint64, 0, n)
	left := ChainPiece
	for _, part := range parts {
		_ = h.WriteByte(apart)
		for len(part) >= left && len(chain) < n {
			_, _ = h.Write(part[:left])
			chain, part, left = append(chain, h.Sum64()), part[left:], ChainPiece
		}
		if len(chain) == n {
			break
		}
		_, _ = h.Write(part)
		left -= len(part)
	}
	return chain
}

// Bytes returns how many bytes Chain would hash without its bound.
func (p Prompt) Bytes() (n int) {
	for _, part := range p.parts() {
		n += len(part)
	}
	return n
}

// parts returns the tools, what stands before the history, and the history as the client wrote them; for a text
// completion only the prompt.
func (p Prompt) parts() (parts [3][]byte) {
	parts[2] = p.body.Get(p.api.subject())
	if p.api != Text {
		parts[0] = p.body.Get("tools")
	}
	if p.api.Rendered() {
		parts[1] = p.preamble()
	}
	if last := parts[2]; len(last) > 0 {
		parts[2] = last[:len(last)-1] // without the end of the list or text, where a longer prompt goes on
	}
	return parts
}

// apart separates the parts of a chain: the byte occurs in no UTF-8.
const apart = 0xff
