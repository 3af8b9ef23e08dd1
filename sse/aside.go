package sse

import "slices"

// Parts of a stream without data are no events, and clients dispatch nothing for them (WHATWG HTML 9.2.6): comments,
// which engines and gateways send to keep a connection alive, blank lines, and events with other fields only. Comments
// before an event are decided line by line: one that came minutes before the event neither waits for it nor makes it
// look older.

// besides reports whether a piece without data begins with rest, where an event may begin: a comment line, or a blank one.
func (r *Relay) besides(rest []byte) bool {
	return r.inComment || r.seen == 0 && !r.opened && (rest[0] == ':' || rest[0] == '\n' || rest[0] == '\r')
}

// beside decides on the line that rest begins with, and reports whether the line was complete.
func (r *Relay) beside(rest []byte) (done bool) {
	end := r.seen + lineEnd(rest[r.seen:])
	if r.inComment = end == len(rest); r.inComment {
		if r.seen = end; r.seen > r.cfg.MaxEvent || r.stats.MidEvent { // a comment without end is passed on in constant memory
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

// aside decides on the first n bytes of the rest, which have no data. While nothing has gone out, they wait with the
// event that is held back, or for the first event if Config.EventFirst is set. Later, bytes that do not affect the
// held events go out before these.
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

// tail decides on the LF of a CRLF whose CR was decided on before.
func (r *Relay) tail() {
	if r.lone {
		r.aside(1, r.meansNothing)
		return
	}
	r.behind = true
	r.settle(r.verdict, 1)
}

// letGo releases everything that is held back.
func (r *Relay) letGo() {
	r.out, r.holds, r.last = true, false, 0
	r.buf.letGo()
}

// pass releases the first n bytes of the rest, before everything that is held back.
func (b *buffer) pass(n int) {
	b.hold(n)
	held := b.b[b.ready:b.heldEnd]
	slices.Reverse(held[:len(held)-n])
	slices.Reverse(held[len(held)-n:])
	slices.Reverse(held)
	b.ready += n
}
