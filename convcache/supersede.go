package convcache

// Relation compares a chain with one that was put later.
type Relation int

// The relations.
const (
	// Unrelated: no full block is known to be equal, as with a title generator's prompt under the conversation's id;
	// or the block sizes differ, so that nothing can be compared.
	Unrelated Relation = iota
	// Contained: the later chain has all full blocks of the older one. Hashes do not show whether it also has a last
	// partial block, so dropping the older one may lose less than one block.
	Contained
	// Diverges: both begin with the same block, and the older one has tokens that the later one lacks: the turn was
	// regenerated, or an earlier message edited.
	Diverges
)

// Relation compares c with a chain that was put later, by their hashes. No key is needed: hashes under different keys
// are never equal.
func (c Chain) Relation(later Chain) Relation {
	if c.equal(later) {
		return Contained
	}
	if c.BlockSize != later.BlockSize {
		return Unrelated
	}
	shared := 0
	for shared < min(len(c.Blocks), len(later.Blocks)) && c.Blocks[shared] == later.Blocks[shared] {
		shared++
	}
	switch {
	case shared == 0:
		return Unrelated
	case shared < len(c.Blocks), c.Tokens >= later.Tokens:
		// At equal length equal chains have been told apart above by what follows the last block.
		return Diverges
	}
	return Contained
}

// equal reports whether two chains cover the same tokens, without comparing their blocks.
func (c Chain) equal(other Chain) bool {
	return c.Tokens > 0 && c.Tokens == other.Tokens && c.BlockSize == other.BlockSize && c.Whole == other.Whole
}

// supersedes reports whether b can do all that an older branch can.
func (b *Branch) supersedes(older *Branch) bool { return older.Chain.Relation(b.Chain) == Contained }

// Displaces reports whether b makes an older branch superfluous. A note never makes a ticket superfluous: decode
// certainly has the ticket's KV, and prefill may have evicted the note's.
func (b *Branch) Displaces(older *Branch) bool {
	return (older.HandedBack() || !b.HandedBack()) && b.supersedes(older)
}
