package http1

import (
	"bytes"
	"strconv"
)

const (
	maxHead    = 64 << 10 // bytes, including interim answers
	maxInterim = 5        // interim answers (100 to 199)
)

type head struct {
	status  int
	length  int64 // -1 where unknown
	chunked bool
	last    bool // the connection ends with this answer
	old     bool // HTTP/1.0, which knows no chunks

	contentType, contentEncoding, retryAfter string
	typed, delayed                           bool // these fields were there; the first of each name counts

	begun   bool
	interim int // interim answers that were skipped
}

// read returns the length of the complete lines at the beginning of b. done reports that the body follows.
func (h *head) read(b []byte) (n int, done bool, err error) {
	for {
		end := bytes.IndexByte(b[n:], '\n')
		if end < 0 {
			return n, false, nil
		}
		line := b[n : n+end]
		n += end + 1
		if len(line) == 0 || line[len(line)-1] != '\r' {
			return n, false, errLineEnd
		}
		line = line[:len(line)-1]
		switch {
		case !h.begun:
			err = h.statusLine(line)
		case len(line) == 0:
			if done, err = h.complete(); done {
				return n, true, err
			}
		default:
			err = h.field(line)
		}
		if err != nil {
			return n, false, err
		}
	}
}

// statusLine ignores the reason phrase, which may be missing together with the blank before it.
func (h *head) statusLine(line []byte) error {
	const version = "HTTP/1.x "
	if len(line) < len(version)+3 || string(line[:7]) != version[:7] || line[7] != '0' && line[7] != '1' || line[8] != ' ' {
		return errStatusLine
	}
	if rest := line[len(version)+3:]; len(rest) > 0 && rest[0] != ' ' || !isValue(rest) {
		return errStatusLine
	}
	status, err := strconv.ParseUint(string(line[len(version):len(version)+3]), 10, 16)
	if err != nil || status < 100 || status > 599 {
		return errStatusLine
	}
	*h = head{begun: true, status: int(status), length: -1, last: line[7] == '0', old: line[7] == '0', interim: h.interim}
	return nil
}

// field reads one field. Interim answers count too: a wrong field shows that the peer speaks no HTTP.
func (h *head) field(line []byte) error {
	if line[0] == ' ' || line[0] == '\t' {
		return errFold
	}
	colon := bytes.IndexByte(line, ':')
	if colon < 0 || !isToken(line[:colon]) {
		return errFieldName
	}
	name, value := line[:colon], trim(line[colon+1:])
	if !isValue(value) {
		return errFieldValue
	}
	switch {
	case same(name, "content-length"):
		return h.setLength(value)
	case same(name, "transfer-encoding"):
		if h.chunked || !same(value, "chunked") {
			return errCoding
		}
		h.chunked = true
	case same(name, "connection"):
		h.last = h.last || closes(value)
	case same(name, "content-type"):
		if !h.typed {
			h.contentType, h.typed = known(value), true
		}
	case same(name, "content-encoding"):
		if h.contentEncoding != "" { // one list (RFC 9110, 5.3)
			value = append([]byte(h.contentEncoding+", "), value...)
		}
		h.contentEncoding = known(value)
	case same(name, "retry-after"):
		if !h.delayed {
			h.retryAfter, h.delayed = string(value), true
		}
	}
	return nil
}

// setLength takes a Content-Length. A sender may repeat it, but not as a list in one line (RFC 9112, 6.3).
func (h *head) setLength(digits []byte) error {
	n, err := strconv.ParseUint(string(digits), 10, 63)
	if err != nil {
		return errLength
	}
	if h.length >= 0 && h.length != int64(n) {
		return errLengths
	}
	h.length = int64(n)
	return nil
}

// complete ends a header. After an interim answer another follows.
func (h *head) complete() (done bool, err error) {
	switch {
	case h.chunked && h.length >= 0:
		return true, errBothFramings
	case h.chunked && h.old:
		return true, errCoding
	case h.status == 101:
		return true, errUpgrade
	case h.status >= 200:
		return true, nil
	}
	if h.interim++; h.interim > maxInterim {
		return true, errInterim
	}
	h.begun = false
	return false, nil
}

func closes(value []byte) bool {
	for element := range bytes.SplitSeq(value, []byte(",")) {
		if same(trim(element), "close") {
			return true
		}
	}
	return false
}

// known returns a value as text. Usual values of engines cost no allocation.
func known(value []byte) string {
	for _, text := range [...]string{"application/json", "text/event-stream; charset=utf-8", "text/event-stream", "identity"} {
		if string(value) == text {
			return text
		}
	}
	return string(value)
}
