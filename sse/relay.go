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
	dst    io.Writer
	flush  func() error
	cfg    Config
	needle []byte // an event that contains neither needle nor escape does not contain the member
	escape []byte
	null   []byte // the end of a chunk whose last member is the member with the value null; needle is part of it

	searched [32]byte // array of null, unless null is longer
	escapes  [4]byte  // array of escape

	buf     buffer
	frame   framer
	data    dataBuffer
	edits   edits
	stats   Stats
	seen    int     // bytes of the rest that the framer has scanned
	begun   bool    // the byte order mark, if any, was handled
	gone    int     // bytes that cutNull has left behind the event
	split   bool    // the event at the beginning of rest has come in several reads
	opened  bool    // an oversize event is passing through
	refused bool    // an oversize event has ended the relay
	holds   bool    // an observed event is held back
	last    int     // length of the last held event, with what follows it
	behind  bool    // the bytes to settle are the LF of the previous event's CRLF
	verdict Verdict // verdict on the last event; it also holds for an LF that follows
	out     bool    // something has been released to the client

	inComment    bool // the rest begins with an unfinished comment line
	lone         bool // the last thing that was decided on had no data
	meansNothing bool // and it does not affect any event
}

// New returns a Relay that writes to dst and calls flush, unless nil, after each write.
func New(dst io.Writer, flush func() error, cfg Config) *Relay {
	if cfg.MaxEvent == 0 {
		cfg.MaxEvent = DefaultMaxEvent
	}
	r := &Relay{dst: dst, flush: flush, cfg: cfg, buf: buffer{memory: cfg.Memory}}
	if cfg.Strip != "" {
		// The closing quote excludes the name within a JSON string, where a backslash follows the name. The search leaves the opening
		// quote out and so begins with a rarer byte; chunks are full of quotes.
		r.null = append(append(append(r.searched[:0], `}],"`...), cfg.Strip...), `":null}`...)
		r.needle = r.null[len(`}],"`) : len(r.null)-len(`:null}`)]
		// Escapes of ASCII characters begin with \u00; escapes of emoji and most scripts do not.
		r.escape = append(r.escapes[:0], `\u00`...)
		if strings.ContainsFunc(cfg.Strip, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"\/`, c) }) {
			r.escape = r.escape[:1]
		}
	}
	return r
}

// Stats returns the counts so far. Observe may call it during Run, and anyone after Run.
func (r *Relay) Stats() Stats { return r.stats }

// Run relays src until its end, an error, or the verdict Stop. The end of src is clean only if the error is io.EOF itself; an
// error that wraps io.EOF is a stream that broke off. At a clean end everything that is left goes out. That includes an unfinished
// event, which Run does not observe, because clients discard it (WHATWG HTML 9.2.6).
func (r *Relay) Run(src io.Reader) error {
	defer r.buf.free()
	empty := 0
	for {
		n, err := src.Read(r.buf.spare())
		r.buf.filled(n)
		stop := r.scan()
		clean := err == io.EOF
		if clean && !stop {
			r.finish()
		}
		if werr := r.send(); werr != nil {
			return &WriteError{werr}
		}
		r.buf.sent()
		switch {
		case stop && r.refused:
			return ErrOversize
		case stop:
			return ErrStopped
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

// scan decides on the bytes that have been read, event by event, and reports whether the relay has to stop.
func (r *Relay) scan() (stop bool) {
	if !r.begun && !r.begin() {
		return false
	}
	for {
		rest := r.buf.rest()
		if r.seen == len(rest) {
			return false
		}
		if r.seen == 0 && r.frame.tail(rest) {
			r.tail()
			continue
		}
		var verdict Verdict
		if data, n, ok := oneLine(rest); ok && r.seen == 0 && !r.opened && !r.inComment && n <= r.cfg.MaxEvent {
			r.seen = n
			r.data.oneLine()
			verdict = r.decide(rest[:n], data)
		} else if r.besides(rest) {
			if !r.beside(rest) {
				return false
			}
			continue
		} else {
			n, done := r.frame.next(rest[r.seen:])
			r.seen += n
			if r.opened || r.seen > r.cfg.MaxEvent {
				if r.cfg.Bounded {
					r.stats.Oversize++
					r.refused = true
					return true
				}
				r.passThrough(done)
				continue
			}
			if !done {
				r.unfinished()
				return false
			}
			data, ok := r.data.parse(rest[:r.seen])
			if !ok {
				r.aside(r.seen, false)
				r.seen, r.split = 0, false
				continue
			}
			verdict = r.decide(rest[:r.seen], data)
		}
		if verdict == Stop {
			return true
		}
		r.settle(verdict, r.seen-r.gone)
		r.buf.drop(r.gone)
		r.seen, r.gone, r.split = 0, 0, false
	}
}

// unfinished records that the read has ended within an event.
func (r *Relay) unfinished() {
	if !r.split && r.cfg.Begin != nil {
		r.cfg.Begin()
	}
	r.split = true
}

// begin handles the byte order mark, and reports whether enough bytes have come to do so. The mark goes out together with the
// first other bytes.
func (r *Relay) begin() bool {
	head := r.buf.rest()
	if len(head) < len(byteOrderMark) && strings.HasPrefix(byteOrderMark, string(head)) {
		return false
	}
	if bytes.HasPrefix(head, []byte(byteOrderMark)) {
		r.buf.hold(len(byteOrderMark))
	}
	r.begun = true
	return true
}

// passThrough releases the held bytes, and then the bytes read so far of an oversize event.
func (r *Relay) passThrough(done bool) {
	if !r.opened {
		r.stats.Oversize++
	}
	r.settle(Forward, r.seen)
	r.seen, r.split = 0, false
	r.opened = !done
	r.stats.MidEvent = !done
}

// decide returns the verdict on a complete event with this data. Afterwards r.edits has the changes of the event's bytes.
func (r *Relay) decide(event, data []byte) Verdict {
	r.stats.Events++
	if r.needle != nil && !r.cfg.Expose {
		event, data = r.cutNull(event, data)
	}
	seen := Event{Data: data, Split: r.split, edits: &r.edits}
	if r.needle != nil && (bytes.Contains(event, r.needle) || bytes.Contains(event, r.escape)) {
		seen.Member, r.edits.cuts = rawjson.FindMember(data, r.cfg.Strip, r.edits.cuts)
		if r.gone > 0 || rawjson.IsNull(seen.Member) {
			seen.Member = nil
		}
		if !r.cfg.Expose {
			r.edits.takeCuts()
		}
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
	behind := r.behind
	r.behind, r.lone = false, false
	defer r.edits.reset()
	if verdict == Supersede && r.last == 0 {
		verdict = Drop
	}
	r.verdict = verdict
	switch verdict {
	case Drop:
		r.buf.drop(n)
		return
	case Supersede:
		r.buf.takeBack(r.last)
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
	if verdict == Hold && r.buf.heldBytes() <= r.cfg.MaxEvent {
		r.holds = true
		if !behind {
			r.last = 0
		}
		r.last += r.buf.heldBytes() - before
		return
	}
	r.verdict = Forward
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
	n, err := r.dst.Write(r.buf.b[:r.buf.ready])
	r.stats.Bytes += int64(n)
	if err == nil && n < r.buf.ready {
		err = io.ErrShortWrite
	}
	if err == nil && r.flush != nil {
		err = r.flush()
	}
	return err
}
