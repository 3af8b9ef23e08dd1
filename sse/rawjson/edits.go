package rawjson

// change is what an edit does to a member.
type change uint8

const (
	setMember     change = iota // put the value, at the end if the member is absent
	replaceMember               // put the value if the member is present and not null
	removeMember
)

type memberEdit struct {
	name   string
	value  []byte
	word   string // in place of value
	change change
	done   bool
}

// Edits is one rewrite of an object. Of two edits of one member the last counts. It is used once. Names are written as they are and
// must not need escapes; values must be JSON. A few names are searched for each member; a map would cost more than it finds.
type Edits []memberEdit

// Set puts the value in place of the member's, and the member at the end if it is absent.
func (e *Edits) Set(name string, value []byte) {
	*e = append(*e, memberEdit{name: name, change: setMember, value: value})
}

// Replace puts the value in place of the member's if that is present and not null.
func (e *Edits) Replace(name string, value []byte) {
	*e = append(*e, memberEdit{name: name, change: replaceMember, value: value})
}

// SetWord is Set with a value that is known beforehand.
func (e *Edits) SetWord(name, value string) {
	*e = append(*e, memberEdit{name: name, change: setMember, word: value})
}

// ReplaceWord is Replace with a value that is known beforehand.
func (e *Edits) ReplaceWord(name, value string) {
	*e = append(*e, memberEdit{name: name, change: replaceMember, word: value})
}

// Remove takes members out.
func (e *Edits) Remove(names ...string) {
	for _, name := range names {
		*e = append(*e, memberEdit{name: name, change: removeMember})
	}
}

// find returns which edit counts for a member, -1 if none does.
func (e Edits) find(name []byte) int {
	for i := len(e) - 1; i >= 0; i-- {
		if e[i].name == string(name) {
			return i
		}
	}
	return -1
}

// counts reports whether no later edit is of the same member.
func (e Edits) counts(at int) bool {
	for i := at + 1; i < len(e); i++ {
		if e[i].name == e[at].name {
			return false
		}
	}
	return true
}

// Rewrite returns the object's text with the edits applied, in one allocation. Members keep their order, new ones go to the
// end in the order of the edits, and all bytes that no edit concerns stay as they are, white space included.
func (o *Object) Rewrite(e Edits) []byte {
	size := len(o.raw)
	for i := range e {
		size += len(`,"":`) + len(e[i].name) + len(e[i].value) + len(e[i].word)
	}
	out := make([]byte, 0, size)
	var buffer [usualSteps]step
	for _, s := range o.steps(e, buffer[:0]) {
		if s.edit < 0 {
			out = append(out, o.raw[s.from:s.to]...)
			continue
		}
		if s.absent {
			out = e[s.edit].appendName(out, s.first)
		}
		out = append(append(out, e[s.edit].value...), e[s.edit].word...)
	}
	return out
}

// appendName appends the name of a new member and what is around it.
func (e *memberEdit) appendName(to []byte, first bool) []byte {
	if !first {
		to = append(to, ',')
	}
	to = append(to, '"')
	to = append(to, e.name...)
	return append(to, `":`...)
}

// step is a part of a rewritten object: bytes of its text, or the value of an edit.
type step struct {
	from, to int   // of the text
	edit     int32 // whose value it is; less than 0 for bytes of the text
	absent   bool  // there is no such member, so that its name comes with it
	first    bool  // there is no member before it
}

// usualSteps is how many there are at most in nearly all legs.
const usualSteps = 24

// steps appends the parts of the object with the edits applied. It says where they are and holds none of them, so that the values of
// edits need not live longer than a Rewrite.
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
