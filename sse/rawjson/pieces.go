package rawjson

// Pieces is a text in pieces that are read one behind the other. Long ones are parts of the texts that it was made of, none of
// which may change while it is in use: to put a prompt of 256 KiB together costs more than to write it.
type Pieces [][]byte

// Len returns the length of the text.
func (p Pieces) Len() (n int) {
	for _, piece := range p {
		n += len(piece)
	}
	return n
}

// Bytes returns the text in one piece, which is a copy.
func (p Pieces) Bytes() []byte {
	text := make([]byte, 0, p.Len())
	for _, piece := range p {
		text = append(text, piece...)
	}
	return text
}

// ownPiece is the length from which a part is a piece of its own: to write another piece costs more than to copy a shorter part.
const ownPiece = 256

// assembly makes pieces. Its arrays hold what a leg needs mostly, 800 bytes in one allocation.
type assembly struct {
	pieces Pieces
	own    []byte // short parts, of which pieces are made
	cut    int    // up to where of own they have been

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

// close makes a piece of the short parts that came last.
func (a *assembly) close() {
	if end := len(a.own); end > a.cut {
		a.pieces = append(a.pieces, a.own[a.cut:end:end])
		a.cut = end
	}
}

// Splice returns what Rewrite does, without a copy of what is long.
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
