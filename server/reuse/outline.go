package reuse

import "carryover/convcache"

// outline is a request without its content: hashes of its parts (see [body.Prompt.Outline]), and the key that makes a ticket's of them. It
// says where a conversation's history was rewritten, and proves nothing.
type outline struct {
	key   convcache.ChainKey
	parts []uint64
}

// of returns the outline that a ticket keeps, nil if there is none.
func (o *outline) of(ticket convcache.TicketID) []uint32 {
	if o.parts == nil {
		return nil
	}
	return o.key.Outline(ticket, o.parts)
}

// agrees returns how many parts of the request that left a ticket or note are those of this one, from the first on. known is false if one of
// the two has no outline.
func (o *outline) agrees(b *convcache.Branch) (parts int, known bool) {
	if o.parts == nil || b.Outline == nil {
		return 0, false
	}
	own := o.key.Outline(b.ID, o.parts[:min(len(o.parts), len(b.Outline))])
	for parts < len(own) && own[parts] == b.Outline[parts] {
		parts++
	}
	return parts, true
}

// mayContinue reports whether a request may go on with what a ticket covers: nothing before the ticket's answer differs. It is false if that
// is not known.
func (o *outline) mayContinue(b *convcache.Branch) bool {
	parts, known := o.agrees(b)
	return known && parts == len(b.Outline)
}

// leaves reports whether a request is known to differ from what a ticket covers before the ticket's answer, or to end there.
func (o *outline) leaves(b *convcache.Branch) bool {
	parts, known := o.agrees(b)
	return known && (parts < len(b.Outline) || parts == len(o.parts))
}
