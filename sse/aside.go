package sse

import "slices"

// Some parts of a stream have no data and are not events, so clients dispatch nothing for them (WHATWG HTML 9.2.6): comments,
// which engines and gateways send to keep a connection alive, blank lines, and events that have only other fields. The relay
// decides on comments before an event line by line. A comment that came minutes before the event does not wait for it and does
// not make it look older.

// besides reports whether rest, where an event may begin, begins with a comment line or a blank line instead.
func (r *Relay) besides(rest []byte) bool {
	return r.event.inComment || r.event.seen == 0 && !r.event.opened && (rest[0] == ':' || rest[0] == '\n' || rest[0] == '\r')
}

// beside decides on the line that rest begins with, and reports whether the line was complete.
func (r *Relay) beside(rest []byte) (done bool) {
	end := r.event.seen + lineEnd(rest[r.event.seen:])
	if r.event.inComment = end == len(rest); r.event.inComment {
		if r.event.seen = end; r.event.seen > r.room || r.stats.MidEvent { // a comment without end is passed on in constant memory
			r.stats.MidEvent = true
			r.aside(r.event.seen, true)
			r.event.seen = 0
		}
		return false
	}
	r.stats.MidEvent = false
	r.frame.cr = rest[end] == '\r'
	r.aside(end+1, true)
	r.event.seen = 0
	return true
}

// aside decides on the first n bytes of the rest, which have no data. Bytes that do not affect the held events go out before these, behind
// the byte order mark; others wait behind the held event.
func (r *Relay) aside(n int, meansNothing bool) {
	r.previous.lone, r.previous.meansNothing = true, meansNothing
	waits := r.held.any && !meansNothing
	if r.held.any && !waits && n <= r.cfg.MaxEvent {
		r.buf.pass(n, r.mark)
		r.released, r.mark = true, 0
		return
	}
	r.buf.hold(n)
	if r.held.any {
		r.held.last += n
	}
	if !waits || r.buf.heldBytes() > r.cfg.MaxEvent {
		r.letGo()
	}
}

// tail decides on the LF of a CRLF when the CR has been decided on before.
func (r *Relay) tail() {
	if r.previous.lone {
		r.aside(1, r.previous.meansNothing)
		return
	}
	r.previous.behind = true
	r.settle(r.previous.verdict, 1)
}

// letGo releases everything that is held back.
func (r *Relay) letGo() {
	r.held, r.released, r.mark = held{}, true, 0
	r.buf.letGo()
}

// pass releases the first n bytes of the rest, before everything that is held back but its first bytes.
func (b *buffer) pass(n, first int) {
	b.hold(n)
	b.ready += first
	held := b.b[b.ready:b.heldEnd]
	slices.Reverse(held[:len(held)-n])
	slices.Reverse(held[len(held)-n:])
	slices.Reverse(held)
	b.ready += n
}
