package sse

import (
	"bytes"
	"sort"
)

// scanWindow bounds the search for an LF before that for a CR: a stream with lone CRs would be searched to its end once per line.
const scanWindow = 512

func lineEnd(b []byte) int {
	for off := 0; off < len(b); off += scanWindow {
		w := b[off:min(off+scanWindow, len(b))]
		lf := bytes.IndexByte(w, '\n')
		if lf >= 0 {
			w = w[:lf]
		}
		if cr := bytes.IndexByte(w, '\r'); cr >= 0 {
			return off + cr
		}
		if lf >= 0 {
			return off + lf
		}
	}
	return len(b)
}

// afterLine returns the bytes after the line end at index end; CRLF is one line end.
func afterLine(b []byte, end int) []byte {
	rest := b[end:]
	if bytes.HasPrefix(rest, []byte("\r\n")) {
		return rest[2:]
	}
	return rest[min(1, len(rest)):]
}

const oneLineName = "data: "

// oneLine returns the data and length of an event that is one data line and ends in LF, as vLLM writes it. For any other, incomplete or
// longer event (scanWindow) ok is false, and framer finds the same. oneLine saves two searches per chunk.
func oneLine(b []byte) (data []byte, n int, ok bool) {
	w := b[:min(len(b), scanWindow)]
	if !bytes.HasPrefix(w, []byte(oneLineName)) {
		return nil, 0, false
	}
	end := bytes.IndexByte(w, '\n')
	if end < 0 || end+1 >= len(w) || w[end+1] != '\n' || bytes.IndexByte(w[:end], '\r') >= 0 {
		return nil, 0, false
	}
	return w[len(oneLineName):end], end + 2, true
}

// framer finds the ends of events: blank lines, where a line ends in LF, CRLF or CR (WHATWG HTML 9.2.6). It sees every byte once, so its
// work is linear.
//
// A CR ends its line at once, even at the end of a read: waiting for an LF would delay the event. An LF that follows belongs to the same
// line end; see tail.
type framer struct {
	inLine bool // a byte of the line has been seen
	cr     bool // the last byte was the CR of a line end
}

// tail reports whether b, where an event ended, begins with the LF of its CRLF.
func (f *framer) tail(b []byte) bool {
	lf := f.cr && b[0] == '\n'
	f.cr = false
	return lf
}

// next scans b, which continues earlier bytes, up to the first blank line, and returns the number of bytes. done says that it found one.
func (f *framer) next(b []byte) (n int, done bool) {
	for n < len(b) {
		if f.tail(b[n:]) {
			n++
			continue
		}
		i := lineEnd(b[n:])
		if n+i == len(b) {
			f.inLine = true
			return len(b), false
		}
		blank := i == 0 && !f.inLine
		f.inLine = false
		f.cr = b[n+i] == '\r'
		n += i + 1
		if blank {
			return n, true
		}
	}
	return n, false
}

type dataLine struct{ raw, joined int }

// dataBuffer is the data of one event, with the way back to the event's bytes. It is reused for the next event.
type dataBuffer struct {
	lines  []dataLine
	joined []byte
	one    [1]dataLine // array of lines while events have one line
}

// parse returns the values of a complete event's data lines, joined with LF. Names are case sensitive, exactly one space after the colon is
// no part of the value, and a line without colon is a name (WHATWG HTML 9.2.6). Without a data line ok is false: clients dispatch nothing.
// It does not copy a single data line.
func (d *dataBuffer) parse(event []byte) (data []byte, ok bool) {
	d.lines, d.joined = d.lines[:0], d.joined[:0]
	for rest := event; len(rest) > 0; {
		end := lineEnd(rest)
		if value, is := dataValue(rest[:end]); is {
			raw := len(event) - len(rest) + end - len(value)
			switch len(d.lines) {
			case 0:
				data = value
			case 1:
				d.joined = append(d.joined, data...)
				fallthrough
			default:
				d.joined = append(append(d.joined, '\n'), value...)
				data = d.joined
			}
			d.lines = append(d.lines, dataLine{raw: raw, joined: len(data) - len(value)})
		}
		rest = afterLine(rest, end)
	}
	return data, len(d.lines) > 0
}

// oneLine is parse for an event that the function oneLine has recognised.
func (d *dataBuffer) oneLine() {
	if d.lines == nil {
		d.lines = d.one[:0]
	}
	d.lines, d.joined = append(d.lines[:0], dataLine{raw: len(oneLineName)}), d.joined[:0]
}

// raw returns the position in the event of byte i of its data, which must not be a joining LF.
func (d *dataBuffer) raw(i int) int {
	after := sort.Search(len(d.lines), func(k int) bool { return d.lines[k].joined > i })
	line := d.lines[after-1]
	return line.raw + i - line.joined
}

func (d *dataBuffer) trim() {
	if cap(d.joined) > smallBuffer || cap(d.lines) > smallBuffer/16 {
		*d = dataBuffer{}
	}
}

func dataValue(line []byte) (value []byte, ok bool) {
	if !bytes.HasPrefix(line, []byte("data")) {
		return nil, false
	}
	value = line[len("data"):]
	if len(value) == 0 {
		return value, true
	}
	if value[0] != ':' {
		return nil, false
	}
	return bytes.TrimPrefix(value[1:], []byte(" ")), true
}
