package sse

import "slices"

// What of a stream has no data is no event, and clients dispatch nothing for it (WHATWG HTML 9.2.6): comments, which engines and
// gateways send to keep a connection alive, blank lines, and events of other fields alone. Comments in front of an event are decided
// line by line: one that came minutes before the rest of its block is neither late with it nor makes it look older.

// besides reports whether a piece without data begins with rest, where an event may begin: a comment line, or a blank one.
func (r *Relay) besides(rest []byte) bool {
	return r.inComment || r.seen == 0 && !r.opened && (rest[0] == ':' || rest[0] == '\n' || rest[0] == '\r')
}

// beside decides on the line that rest begins with, and reports whether it has all of it.
func (r *Relay) beside(rest []byte) (done bool) {
	end := r.seen + lineEnd(rest[r.seen:])
	if r.inComment = end == len(rest); r.inComment {
		if r.seen = end; r.seen > r.cfg.MaxEvent || r.stats.MidEvent { // of a comment without end, constant memory is held
			r.stats.MidEvent = true
			r.aside(r.seen, true)
			r.seen = 0
		}
		return false
	}
	r.stats.MidEvent = false
	r.frame.cr = rest[end] == '\r'
	r.aside(end+1, true)
	r.seen = 0
	return true
}

// aside decides on n bytes of the rest that have no data. Where nothing has gone out yet they wait with the event that is held back, or
// for the first one, if Config.EventFirst says so; later, what means nothing to the events that are held back goes before them.
func (r *Relay) aside(n int, meansNothing bool) {
	r.lone, r.meansNothing = true, meansNothing
	waits := r.holds && !meansNothing || !r.out && (r.holds || r.cfg.EventFirst)
	if r.holds && !waits && n <= r.cfg.MaxEvent {
		r.buf.pass(n)
		return
	}
	r.buf.hold(n)
	if r.holds {
		r.last += n
	}
	if !waits || r.buf.heldBytes() > r.cfg.MaxEvent {
		r.letGo()
	}
}

// tail decides on the LF that belongs to the line end before, which was a CR when it was decided on.
func (r *Relay) tail() {
	if r.lone {
		r.aside(1, r.meansNothing)
		return
	}
	r.behind = true
	r.settle(r.verdict, 1)
}

// letGo lets go out all that is held back.
func (r *Relay) letGo() {
	r.out, r.holds, r.last = true, false, 0
	r.buf.letGo()
}

// pass lets the first n of the rest go out, before what is held back.
func (b *buffer) pass(n int) {
	b.hold(n)
	held := b.b[b.ready:b.heldEnd]
	slices.Reverse(held[:len(held)-n])
	slices.Reverse(held[len(held)-n:])
	slices.Reverse(held)
	b.ready += n
}
