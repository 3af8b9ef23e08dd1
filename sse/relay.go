package sse

import (
	"bytes"
	"io"
	"strings"

	"carryover/sse/rawjson"
)

// maxEmptyReads is how many reads in a row may return nothing before Run counts the reader as broken, as in bufio.
const maxEmptyReads = 100

// byteOrderMark may begin a stream; it is not part of the first line (WHATWG HTML 9.2.6).
const byteOrderMark = "\xef\xbb\xbf"

// Relay copies one stream of events. It is used once and by one goroutine.
type Relay struct {
	cfg    Config
	client client
	member memberSearch
	blanks rawjson.Blanks // of the oversize event that passes, or was the last to pass
	stats  Stats

	buf   buffer
	room  int  // the longest event that there is memory for
	begun bool // the byte order mark, if any, was handled
	frame framer
	event scanned
	data  dataBuffer
	edits edits

	held     held
	released bool // something has been released to the client
	mark     int  // length of the byte order mark that is held back
	previous decided
}

// client is where a stream goes.
type client struct {
	dst    io.Writer
	flush  func() error // nil if there is nothing to flush
	failed error        // of a write
}

// send writes and flushes, and returns how many bytes were written.
func (c *client) send(b []byte) (n int, err error) {
	if c.failed != nil {
		return 0, c.failed
	}
	n, err = c.dst.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err == nil && c.flush != nil {
		err = c.flush()
	}
	c.failed = err
	return n, err
}

// scanned is the event, or the comment, that the rest begins with, as far as it has been read.
type scanned struct {
	seen      int  // bytes of the rest that the framer has scanned
	gone      int  // bytes that cutNull has left behind the event
	split     bool // the event has come in several reads
	opened    bool // it is oversize, and passing through
	inComment bool // the rest begins with an unfinished comment line
}

// held is what the client does not get yet.
type held struct {
	any   bool // an observed event is held back
	brief bool // its verdict was Await
	last  int  // length of the last held event, with what follows it
}

// decided is the last thing that was decided on. The LF of its CRLF may still follow, and shares its fate.
type decided struct {
	verdict      Verdict
	behind       bool // the bytes to settle are that LF
	lone         bool // it had no data
	meansNothing bool // and it does not affect any event
}

// New returns a Relay that writes to dst and calls flush, unless nil, after each write.
func New(dst io.Writer, flush func() error, cfg Config) *Relay {
	if cfg.MaxEvent == 0 {
		cfg.MaxEvent = DefaultMaxEvent
	}
	r := &Relay{cfg: cfg, client: client{dst: dst, flush: flush}, buf: buffer{memory: cfg.Memory}, room: cfg.usualRoom()}
	if cfg.Strip != "" {
		r.member.open(cfg.Strip)
	}
	return r
}

// Stats returns the counts so far. Observe may call it during Run, and anyone after Run.
func (r *Relay) Stats() Stats { return r.stats }

// Released reports whether anything of the stream has gone out, or is about to. Observe may call it during Run.
func (r *Relay) Released() bool { return r.released }

// Run relays src until its end, an error, or the verdict Stop. The end of src is clean only if the error is io.EOF itself; an
// error that wraps io.EOF is a stream that broke off. At a clean end everything that is left goes out. That includes an unfinished
// event, which Run does not observe, because clients discard it (WHATWG HTML 9.2.6).
func (r *Relay) Run(src io.Reader) error {
	defer r.buf.free()
	empty := 0
	for {
		var n int
		var err error
		if space := r.buf.spare(); r.held.brief && r.cfg.Patience > 0 {
			n, err = r.readMeanwhile(src, space)
		} else {
			n, err = src.Read(space)
			r.buf.filled(n)
		}
		stop := r.scan()
		clean := err == io.EOF //nolint:errorlint // what wraps io.EOF has broken off
		if clean && r.cfg.Complete != nil && !r.cfg.Complete() {
			clean, err = false, errNoEnd
		}
		if clean && stop == nil {
			r.finish()
		}
		if werr := r.send(); werr != nil {
			return &WriteError{werr}
		}
		r.buf.sent()
		if r.event.seen == 0 && r.room > r.cfg.usualRoom() {
			r.room = r.cfg.usualRoom()
			r.cfg.Room(0)
		}
		switch {
		case stop != nil:
			return stop
		case clean:
			return nil
		case err != nil:
			return &ReadError{err}
		case n > 0:
			empty = 0
		default:
			if empty++; empty == maxEmptyReads {
				return &ReadError{io.ErrNoProgress}
			}
		}
	}
}

// scan decides on the bytes that have been read, event by event, and returns why the relay has to stop, if it has to.
func (r *Relay) scan() error {
	if !r.begun && !r.begin() {
		return nil
	}
	for {
		rest := r.buf.rest()
		if r.event.seen == len(rest) {
			return nil
		}
		if r.event.seen == 0 && r.frame.tail(rest) {
			r.tail()
			continue
		}
		var verdict Verdict
		if data, n, ok := oneLine(rest); ok && r.event.seen == 0 && !r.event.opened && !r.event.inComment && n <= r.cfg.MaxEvent {
			r.event.seen = n
			r.data.oneLine()
			verdict = r.decide(rest[:n], data)
		} else if r.besides(rest) {
			if !r.beside(rest) {
				return nil
			}
			continue
		} else {
			n, done := r.frame.next(rest[r.event.seen:])
			r.event.seen += n
			if r.event.opened || r.event.seen > r.room && !r.grows() {
				if r.cfg.Bounded {
					r.stats.Oversize++
					return ErrOversize
				}
				r.passThrough(done)
				continue
			}
			if !done {
				r.unfinished()
				return nil
			}
			data, ok := r.data.parse(rest[:r.event.seen])
			if !ok {
				r.aside(r.event.seen, false)
				r.event = scanned{}
				continue
			}
			verdict = r.decide(rest[:r.event.seen], data)
		}
		if verdict == Stop {
			return ErrStopped
		}
		r.settle(verdict, r.event.seen-r.event.gone)
		r.buf.drop(r.event.gone)
		r.event = scanned{}
	}
}

// unfinished records that the read has ended within an event.
func (r *Relay) unfinished() {
	if !r.event.split && r.cfg.Begin != nil {
		r.cfg.Begin()
	}
	r.event.split = true
}

// begin handles the byte order mark, and reports whether enough bytes have come to do so. The mark goes out together with the
// first other bytes.
func (r *Relay) begin() bool {
	head := r.buf.rest()
	if len(head) < len(byteOrderMark) && strings.HasPrefix(byteOrderMark, string(head)) {
		return false
	}
	if bytes.HasPrefix(head, []byte(byteOrderMark)) {
		r.mark = len(byteOrderMark)
		r.buf.hold(r.mark)
	}
	r.begun = true
	return true
}

// decide returns the verdict on a complete event with this data. Afterwards r.edits has the changes of the event's bytes.
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
		r.edits.takeCuts()
	}
	cut := len(r.edits.list) > 0
	verdict := Forward
	if r.cfg.Observe != nil {
		r.edits.open(data)
		verdict = r.cfg.Observe(seen)
		r.edits.close()
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

// substantial reports whether an event is worth sending without the stripped member.
func (r *Relay) substantial(data []byte) bool {
	return len(r.cfg.Substance) == 0 || hasSubstance(data, r.cfg.Substance, r.cfg.Strip)
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

// finish releases everything that is left at a clean end of the stream.
func (r *Relay) finish() {
	if n := len(r.buf.rest()); n > 0 {
		r.stats.MidEvent = true
		r.buf.hold(n)
	}
	r.buf.letGo()
}

// send writes and flushes what may go out.
func (r *Relay) send() error {
	if r.buf.ready == 0 {
		return nil
	}
	n, err := r.client.send(r.buf.b[:r.buf.ready])
	r.stats.Bytes += int64(n)
	return err
}
