package vllmsim

import "slices"

// An engine may report other ids than it has computed. The faults here cause that without making any answer look
// broken.

// tells returns what an engine reports of the id at position n of an answer: the id itself, unless the fault loses or doubles it. In an
// answer that ends before the place of the fault, the fault affects the last id.
func (f *activeFault) tells(n int, id int32, last bool) []int32 {
	lost, doubled := f.is(FaultLostID), f.is(FaultDoubledID)
	switch here := (lost || doubled) && (n == f.place || last && n < f.place); {
	case here && lost:
		return nil
	case here:
		return []int32{id, id}
	}
	return []int32{id}
}

// same returns the length of the common prefix of two prompts.
func same(a, b []int32) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// otherIDs returns the ids with one of them replaced.
func otherIDs(sent []int32) []int32 {
	const behind, other = 20, 700
	ids := slices.Clone(sent)
	at := max(0, len(ids)-behind)
	if ids[at] == other {
		ids[at]++
	} else {
		ids[at] = other
	}
	return ids
}
