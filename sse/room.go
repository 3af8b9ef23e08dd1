package sse

import "carryover/sse/rawjson"

// usualRoom is the longest event that is held without asking for memory.
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

// passThrough releases the held bytes, and then the bytes read so far of an oversize event, with null in place of Config.Blank.
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
