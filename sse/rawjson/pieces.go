package rawjson

// Pieces is a text in several pieces, in their order. Long pieces are slices of the texts that it was made from, and those texts must
// not change while it is in use. Joining a prompt of 256 KiB would cost more than writing it.
type Pieces [][]byte

// Len returns the length of the text.
func (p Pieces) Len() (n int) {
	for _, piece := range p {
		n += len(piece)
	}
	return n
}

// Bytes returns a copy of the text in one piece.
func (p Pieces) Bytes() []byte {
	text := make([]byte, 0, p.Len())
	for _, piece := range p {
		text = append(text, piece...)
	}
	return text
}

// ownPiece is the length from which a part becomes a piece of its own. For a shorter part a copy is cheaper than another write.
const ownPiece = 256

// assembly builds Pieces. Its arrays are large enough for most legs: 800 bytes in one allocation.
type assembly struct {
	pieces Pieces
	own    []byte // the short parts, copied; pieces point into it
	cut    int    // end of the part of own that already belongs to pieces

	somePieces [6][]byte
	someBytes  [576]byte
}

// add appends a part.
func (a *assembly) add(part []byte) {
	if len(part) < ownPiece {
		a.own = append(a.own, part...)
		return
	}
	a.close()
	a.pieces = append(a.pieces, part)
}

// close makes a piece of the short parts that were added last.
func (a *assembly) close() {
	if end := len(a.own); end > a.cut {
		a.pieces = append(a.pieces, a.own[a.cut:end:end])
		a.cut = end
	}
}

// Splice returns the text that Rewrite returns, but does not copy long parts.
func (o *Object) Splice(e Edits) Pieces {
	a := &assembly{}
	a.pieces, a.own = a.somePieces[:0], a.someBytes[:0]
	var buffer [usualSteps]step
	for _, s := range o.steps(e, buffer[:0]) {
		switch {
		case s.edit < 0:
			a.add(o.raw[s.from:s.to])
			continue
		case s.absent:
			a.own = e[s.edit].appendName(a.own, s.first)
		}
		if value := e[s.edit].value; value != nil {
			a.add(value)
		} else {
			a.own = append(a.own, e[s.edit].word...)
		}
	}
	a.close()
	return a.pieces
}
