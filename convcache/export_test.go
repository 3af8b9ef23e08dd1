package convcache

import "time"

// SipHash is sipHash under the key that is the given 16 bytes, for comparison with the reference.
func SipHash(k0, k1, previous uint64, ids []uint32, last bool) uint64 {
	return sipHash(ChainKey{k0: k0, k1: k1}, previous, ids, last)
}

// Halves returns the key as two little-endian words.
func (k ChainKey) Halves() (uint64, uint64) { return k.k0, k.k1 }

// Chain is the chain of a prompt and its output that are there at once.
func (k ChainKey) Chain(prompt, output []uint32, tokens, blockSize int) (Chain, bool) {
	g := k.Grow(prompt, blockSize)
	g.Add(output)
	return g.Chain(tokens)
}

// Offer is what is offered of a ticket that has the chain.
func (k ChainKey) Offer(c Chain, ids []uint32) Offer {
	return k.IDs(ids).Offer(Branch{Chain: c, Tokens: c.Tokens})
}

// Breaker is the breaker of a store.
type Breaker struct{ *breaker }

// NewBreaker returns a closed breaker.
func NewBreaker(now func() time.Time) Breaker { return Breaker{newBreaker(now)} }

// Allows says whether an operation may be sent.
func (b Breaker) Allows() bool { return b.allows() }

// Record counts an operation.
func (b Breaker) Record(ok bool) { b.record(ok) }

// Set opens or closes the breaker.
func (b Breaker) Set(open bool) { b.set(open) }

// Opened tells that the breaker has opened.
func (b Breaker) Opened() <-chan struct{} { return b.opened }

// Shares says whether operations are sent.
func (s *Shared) Shares() bool { return s.breaker.allows() }

// OpenBreaker opens the breaker as five failures do.
func (s *Shared) OpenBreaker() { s.breaker.set(true) }
