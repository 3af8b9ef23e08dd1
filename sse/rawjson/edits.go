package rawjson

import "math"

type change uint8

const (
	setMember     change = iota // at the end if the member is absent
	replaceMember               // only if the member is present and not null
	removeMember
)

type memberEdit struct {
	name   string
	value  []byte
	word   string // the value as a string; value is unused then
	change change
	done   bool
}

// Edits is one rewrite of an object. Of two edits of one member the last counts. An Edits is used once. Names must not need escapes, and values
// must be JSON. A linear search is cheaper than a map for a few names.
type Edits []memberEdit

// Set sets the member's value, and appends an absent member.
func (e *Edits) Set(name string, value []byte) {
	*e = append(*e, memberEdit{name: name, change: setMember, value: value})
}

// SetWord is Set with a string.
func (e *Edits) SetWord(name, value string) {
	*e = append(*e, memberEdit{name: name, change: setMember, word: value})
}

// ReplaceWord sets the member to a string if it is present and not null.
func (e *Edits) ReplaceWord(name, value string) {
	*e = append(*e, memberEdit{name: name, change: replaceMember, word: value})
}

// Remove removes members.
func (e *Edits) Remove(names ...string) {
	for _, name := range names {
		*e = append(*e, memberEdit{name: name, change: removeMember})
	}
}

func (e Edits) find(name []byte) int {
	for i := len(e) - 1; i >= 0; i-- {
		if e[i].name == string(name) {
			return i
		}
	}
	return -1
}

func (e Edits) counts(at int) bool {
	for i := at + 1; i < len(e); i++ {
		if e[i].name == e[at].name {
			return false
		}
	}
	return true
}

// Rewrite returns the edited text in one allocation. New members follow the old ones in the order of the edits; all other bytes stay.
func (o *Object) Rewrite(e Edits) []byte {
	size := len(o.raw)
	for i := range e {
		size += len(`,"":`) + len(e[i].name) + len(e[i].value) + len(e[i].word)
	}
	a := assembly{own: make([]byte, 0, size), least: math.MaxInt}
	a.put(o, e)
	return a.own
}

type step struct {
	from, to int   // offsets in the object's text
	edit     int32 // index of the edit that has the value; negative for bytes of the text
	absent   bool  // the object has no such member, so the step writes its name, too
	first    bool  // no member precedes it
}

const usualSteps = 24

// steps holds offsets instead of slices, so that the values of edits need not live longer than a Rewrite.
func (o *Object) steps(e Edits, to []step) []step {
	keep := func(from, until int) {
		if n := len(to); n > 0 && to[n-1].edit < 0 && to[n-1].to == from {
			to[n-1].to = until
			return
		}
		to = append(to, step{from: from, to: until, edit: -1})
	}
	head, tail := o.open, o.open
	if n := len(o.members); n > 0 {
		head, tail = o.members[0].start, o.members[n-1].end
	}
	keep(0, head)
	first := true
	for i := range o.members {
		m := &o.members[i]
		at := e.find(m.name)
		if m.gone || at >= 0 && e[at].change == removeMember {
			continue
		}
		if !first {
			keep(o.members[i-1].end, m.start) // a comma and its white space
		}
		first = false
		if at < 0 || e[at].change == replaceMember && IsNull(o.raw[m.value:m.end]) {
			keep(m.start, m.end)
			continue
		}
		keep(m.start, m.value)
		to = append(to, step{edit: int32(at)})
		e[at].done = true
	}
	for i := range e {
		if e[i].change == setMember && !e[i].done && e.counts(i) {
			to = append(to, step{edit: int32(i), absent: true, first: first})
			first = false
		}
	}
	keep(tail, len(o.raw))
	return to
}

// Pieces is a text in pieces. Long ones are slices of the source texts, which must not change while it is in use. Joining a prompt of 256 KiB
// would cost more than writing it.
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

// ownPiece is the length from which a part becomes a piece of its own. For less, a copy is cheaper than another write.
const ownPiece = 256

// assembly builds Pieces. Its arrays suffice for most legs: 800 bytes in one allocation.
type assembly struct {
	pieces Pieces
	own    []byte // the short parts; pieces point into it
	cut    int    // end of the part of own that already belongs to pieces
	least  int    // length from which a part becomes a piece of its own

	somePieces [6][]byte
	someBytes  [576]byte
}

func (a *assembly) add(part []byte) {
	if len(part) < a.least {
		a.own = append(a.own, part...)
		return
	}
	a.close()
	a.pieces = append(a.pieces, part)
}

func (a *assembly) close() {
	if end := len(a.own); end > a.cut {
		a.pieces = append(a.pieces, a.own[a.cut:end:end])
		a.cut = end
	}
}

func (a *assembly) put(o *Object, e Edits) {
	var buffer [usualSteps]step
	for _, s := range o.steps(e, buffer[:0]) {
		switch {
		case s.edit < 0:
			a.add(o.raw[s.from:s.to])
			continue
		case s.absent:
			if !s.first {
				a.own = append(a.own, ',')
			}
			a.own = append(append(append(a.own, '"'), e[s.edit].name...), `":`...)
		}
		if value := e[s.edit].value; value != nil {
			a.add(value)
		} else {
			a.own = append(a.own, e[s.edit].word...)
		}
	}
}

// Splice returns the text of Rewrite without copying long parts.
func (o *Object) Splice(e Edits) Pieces {
	a := &assembly{least: ownPiece}
	a.pieces, a.own = a.somePieces[:0], a.someBytes[:0]
	a.put(o, e)
	a.close()
	return a.pieces
}
