package sse

import (
	"bytes"

	"carryover/sse/rawjson"
)

// decide returns the verdict on a complete event, and leaves the event's changes in r.edits.
func (r *Relay) decide(event, data []byte) Verdict {
	r.stats.Events++
	if r.member.needle != nil {
		event, data = r.cutNull(event, data)
	}
	seen := Event{Data: data, Split: r.event.split, edits: &r.edits}
	if r.member.needle != nil && (bytes.Contains(event, r.member.needle) || bytes.Contains(event, r.member.escape)) {
		seen.Member, r.edits.cuts = rawjson.FindMember(data, r.cfg.Strip, r.edits.cuts)
		if r.event.gone > 0 || rawjson.IsNull(seen.Member) {
			seen.Member = nil
		}
		for _, c := range r.edits.cuts {
			r.edits.list = append(r.edits.list, edit{Span: c})
		}
	}
	cut := len(r.edits.list) > 0
	verdict := Forward
	if r.cfg.Observe != nil {
		r.edits.data = data
		verdict = r.cfg.Observe(seen)
		r.edits.data = nil
	}
	if cut && verdict != Stop && !r.substantial(data) {
		verdict = Drop
	}
	for i, e := range r.edits.list {
		r.edits.list[i].Span = rawjson.Span{From: r.data.raw(e.From), To: r.data.raw(e.To-1) + 1}
	}
	r.data.trim()
	return verdict
}

func (r *Relay) substantial(data []byte) bool {
	return len(r.cfg.Substance) == 0 || hasSubstance(data, r.cfg.Substance, r.cfg.Strip)
}

type held struct {
	any   bool // an observed event is held back
	brief bool // its verdict was Await
	last  int  // length of the last held event, with the bytes behind it
}

// decided is the last decision. An LF that completes its CRLF gets the same one.
type decided struct {
	verdict      Verdict
	behind       bool // the bytes to settle are that LF
	lone         bool // it has no data
	meansNothing bool // and it affects no event
}

// settle carries out a verdict on the first n bytes of the rest.
func (r *Relay) settle(verdict Verdict, n int) {
	behind := r.previous.behind
	r.previous.behind, r.previous.lone = false, false
	defer r.edits.reset()
	if r.held.brief && verdict != Await {
		r.letGo()
	}
	if verdict == Supersede && r.held.last == 0 {
		verdict = Drop
	}
	r.previous.verdict = verdict
	switch verdict {
	case Drop:
		r.buf.drop(n)
		return
	case Supersede:
		r.buf.takeBack(r.held.last)
	}
	before := r.buf.heldBytes()
	done := 0
	for _, e := range r.edits.list {
		r.buf.hold(e.From - done)
		r.buf.drop(e.To - e.From)
		r.buf.insert(r.edits.text[e.with.From:e.with.To])
		done = e.To
	}
	r.buf.hold(n - done)
	if (verdict == Hold || verdict == Await) && r.buf.heldBytes() <= r.cfg.MaxEvent {
		r.held.any, r.held.brief = true, verdict == Await
		if !behind {
			r.held.last = 0
		}
		r.held.last += r.buf.heldBytes() - before
		return
	}
	r.previous.verdict = Forward
	r.letGo()
}

func (r *Relay) letGo() {
	r.held, r.released, r.mark = held{}, true, 0
	r.buf.letGo()
}

// Comments, blank lines, and events with only other fields have no data, and clients dispatch nothing for them (WHATWG HTML 9.2.6). The relay
// decides on comments line by line: a keep-alive from minutes before an event neither waits for it nor makes it look older.

// besides reports whether rest begins with a comment or blank line in place of an event.
func (r *Relay) besides(rest []byte) bool {
	return r.event.inComment || r.event.seen == 0 && !r.event.opened && (rest[0] == ':' || rest[0] == '\n' || rest[0] == '\r')
}

// beside decides on the line at the beginning of rest, and reports whether it was complete.
func (r *Relay) beside(rest []byte) (done bool) {
	end := r.event.seen + lineEnd(rest[r.event.seen:])
	if r.event.inComment = end == len(rest); r.event.inComment {
		if r.event.seen = end; r.event.seen > r.room || r.stats.MidEvent { // a comment without end passes in constant memory
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

// aside decides on n bytes without data. Bytes that affect no event go out before the held events, behind the byte order mark; others wait.
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

// tail decides on the LF of a CRLF after its CR.
func (r *Relay) tail() {
	if r.previous.lone {
		r.aside(1, r.previous.meansNothing)
		return
	}
	r.previous.behind = true
	r.settle(r.previous.verdict, 1)
}

// usualRoom is the longest event that needs no memory from Room.
func (c *Config) usualRoom() int {
	if c.Room == nil {
		return c.MaxEvent
	}
	return min(c.MaxEvent, DefaultMaxEvent)
}

// grows reports whether the event may be held although it is longer than the room.
func (r *Relay) grows() bool {
	for r.event.seen > r.room {
		if r.room >= r.cfg.MaxEvent || !r.cfg.Room(2*int64(r.room)) {
			return false
		}
		r.room = min(2*r.room, r.cfg.MaxEvent)
	}
	return true
}

// passThrough releases held bytes, and then the oversize event so far, with null for Config.Blank.
func (r *Relay) passThrough(done bool) {
	if !r.event.opened {
		r.blanks = rawjson.Blanks{Names: r.cfg.Blank}
		if r.stats.Oversize++; r.cfg.Unread != nil {
			r.cfg.Unread(r.buf.rest()[:r.event.seen])
		}
	}
	if r.cfg.Blank != nil {
		for _, blank := range r.blanks.Next(r.buf.rest()[:r.event.seen]) {
			r.edits.blank(blank)
		}
	}
	r.settle(Forward, r.event.seen)
	r.event.seen, r.event.split = 0, false
	r.event.opened = !done
	r.stats.MidEvent = !done
}

// Blanked returns the value of the first of Config.Blank in the last event that passed unread, nil for none.
func (r *Relay) Blanked() []byte { return r.blanks.First }
