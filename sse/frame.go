package sse

import "bytes"

// scanWindow bounds how far lineEnd looks for an LF before it looks for a CR. Without it a stream whose lines end in
// lone CRs is searched to the end of the buffer once per line.
const scanWindow = 512

// lineEnd returns the index of the first CR or LF in b, or len(b) if there is none.
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

// afterLine returns what follows the line that ends at index end of b: CRLF is one line end.
func afterLine(b []byte, end int) []byte {
	rest := b[end:]
	if bytes.HasPrefix(rest, []byte("\r\n")) {
		return rest[2:]
	}
	return rest[min(1, len(rest)):]
}

// oneLineName begins the one line of an event as vLLM writes it.
const oneLineName = "data: "

// oneLine returns the data and the length of the event at the beginning of b, if the event is one data line as vLLM writes it and
// ends in LF. ok is false for any other event, for an incomplete one, and for one of more than scanWindow bytes; framer handles
// those, with the same result. For a chunk oneLine saves two searches.
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

// framer finds the ends of events: blank lines, where a line ends in LF, CRLF or CR (WHATWG HTML 9.2.6). It sees every byte once,
// so its work is linear however many reads the stream takes.
//
// A CR ends its line at once, even as the last byte of a read, because waiting for a possible LF would delay the event until the
// next read. An LF that then follows still belongs to that line; see tail.
type framer struct {
	inLine bool // a byte of the current line has been seen
	cr     bool // the byte before was the CR of a line end
}

// tail reports whether b, which starts where an event ended, begins with the LF of that event's last line end.
func (f *framer) tail(b []byte) bool {
	lf := f.cr && b[0] == '\n'
	f.cr = false
	return lf
}

// next scans b, which continues the bytes scanned before, up to the first blank line, and returns the number of bytes
// scanned. done says that they end with that blank line.
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
