package rawjson

// change is what an edit does to a member.
type change int

const (
	setMember     change = iota // put the value, at the end if the member is absent
	replaceMember               // put the value if the member is present and not null
	removeMember
)

type memberEdit struct {
	name   string
	change change
	value  []byte
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

// Remove takes members out.
func (e *Edits) Remove(names ...string) {
	for _, name := range names {
		*e = append(*e, memberEdit{name: name, change: removeMember})
	}
}

// find returns the edit that counts for a member, nil if there is none.
func (e Edits) find(name []byte) *memberEdit {
	for i := len(e) - 1; i >= 0; i-- {
		if e[i].name == string(name) {
			return &e[i]
		}
	}
	return nil
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
		size += len(`,"":`) + len(e[i].name) + len(e[i].value)
	}
	out := make([]byte, 0, size)
	head, tail := o.open, o.open
	if n := len(o.members); n > 0 {
		head, tail = o.members[0].start, o.members[n-1].end
	}
	out = append(out, o.raw[:head]...)
	first := true
	for i := range o.members {
		m := &o.members[i]
		found := e.find(m.name)
		if m.gone || found != nil && found.change == removeMember {
			continue
		}
		if !first {
			out = append(out, o.raw[o.members[i-1].end:m.start]...) // a comma and its white space
		}
		first = false
		if found == nil || found.change == replaceMember && IsNull(o.raw[m.value:m.end]) {
			out = append(out, o.raw[m.start:m.end]...)
			continue
		}
		out = append(out, o.raw[m.start:m.value]...)
		out = append(out, found.value...)
		found.done = true
	}
	for i := range e {
		if e[i].change != setMember || e[i].done || !e.counts(i) {
			continue
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(out, '"')
		out = append(out, e[i].name...)
		out = append(out, `":`...)
		out = append(out, e[i].value...)
	}
	return append(out, o.raw[tail:]...)
}
