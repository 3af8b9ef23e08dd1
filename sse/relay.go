package sse

import (
	"bytes"
	"io"
	"strings"
	"time"

	"carryover/sse/rawjson"
)

// maxEmptyReads in a row mean that the reader is broken, as in bufio.
const maxEmptyReads = 100

// byteOrderMark may begin a stream, and is not part of its first line (WHATWG HTML 9.2.6).
const byteOrderMark = "\xef\xbb\xbf"

// Relay copies one stream of events. It is used once, by one goroutine.
type Relay struct {
	cfg    Config
	client client
	member memberSearch
	blanks rawjson.Blanks // of the last oversize event
	stats  Stats

	buf   buffer
	room  int  // the longest event that has memory
	begun bool // the byte order mark, if any, is handled
	frame framer
	event scanned
	data  dataBuffer
	edits edits

	held     held
	released bool // something has been released to the client
	mark     int  // length of the held byte order mark
	previous decided
}

type client struct {
	dst    io.Writer
	flush  func() error // nil for nothing to flush
	failed error        // of a write
}

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

type scanned struct {
	seen      int  // bytes that the framer has scanned
	gone      int  // bytes that cutNull has left behind the event
	split     bool // it has come in several reads
	opened    bool // it is oversize, and passing
	inComment bool // the rest begins with an unfinished comment line
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

// Stats returns the counts so far. It may be called by Observe, and after Run.
func (r *Relay) Stats() Stats { return r.stats }

// Released reports whether anything has gone out, or is about to. Observe may call it.
func (r *Relay) Released() bool { return r.released }

// Run relays src until its end, an error, or the verdict Stop. Only io.EOF itself is a clean end; an error that wraps io.EOF has broken
// off. At a clean end everything goes out, even an unfinished event; it is not observed, because clients discard it (WHATWG HTML 9.2.6).
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
		clean := err == io.EOF //nolint:errorlint // an error that wraps io.EOF has broken off
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

// readMeanwhile reads once, and releases held bytes if that takes too long. No write touches space, and the buffer does not move before both
// are over.
func (r *Relay) readMeanwhile(src io.Reader, space []byte) (n int, err error) {
	var panicked any
	released := make(chan struct{})
	timer := time.AfterFunc(r.cfg.Patience, func() {
		defer close(released)
		defer func() { panicked = recover() }() // the caller handles it
		r.letGo()
		_ = r.send() // the next send fails, too
	})
	defer func() {
		late := !timer.Stop()
		if late {
			<-released
		}
		if panicked != nil {
			panic(panicked)
		}
		if r.buf.filled(n); late && r.client.failed == nil {
			r.buf.sent()
		}
	}()
	return src.Read(space)
}

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

func (r *Relay) unfinished() {
	if !r.event.split && r.cfg.Begin != nil {
		r.cfg.Begin()
	}
	r.event.split = true
}

// begin handles the byte order mark, and reports whether enough bytes have come for that. The mark goes out with the first other bytes.
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

func (r *Relay) finish() {
	if n := len(r.buf.rest()); n > 0 {
		r.stats.MidEvent = true
		r.buf.hold(n)
	}
	r.buf.letGo()
}

func (r *Relay) send() error {
	if r.buf.ready == 0 {
		return nil
	}
	n, err := r.client.send(r.buf.b[:r.buf.ready])
	r.stats.Bytes += int64(n)
	return err
}
