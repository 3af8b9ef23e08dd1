package http1

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// Request is one request.
type Request struct {
	Method string // GET or POST
	Scheme string // http or https
	// Authority is host, or host:port, an IPv6 address in brackets; it becomes the field Host unchanged.
	Authority string
	Path      string // with the query, if any
	Header    []Field
	// Body is sent with its length, one piece after the other. Nothing refers to it when Do has returned.
	Body [][]byte
	// Connected is called with the connection before anything is written; unless it was called, nothing was sent.
	Connected func(net.Conn)
}

// Field is one line of a header.
type Field struct{ Name, Value string }

// check refuses a request in which anything could end a line or frame another request.
func (q *Request) check() error {
	switch {
	case q.Method != "GET" && q.Method != "POST":
		return errMethod
	case q.Scheme != "http" && q.Scheme != "https":
		return errScheme
	case q.Authority == "" || !isVisible(q.Authority) || strings.ContainsAny(q.Authority, `@/?#\"<>^{}|%`+"`"): // dialling finds other faults
		return errAuthority
	case !strings.HasPrefix(q.Path, "/") || !isVisible(q.Path):
		return errPath
	}
	for _, f := range q.Header {
		switch {
		case !isToken(f.Name):
			return errName
		case slices.ContainsFunc(framingFields, func(ours string) bool { return strings.EqualFold(f.Name, ours) }):
			return errReserved
		case !isValue(f.Value):
			return errValue
		}
	}
	return nil
}

var framingFields = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Upgrade", "Expect", "TE"} //nolint:gochecknoglobals // immutable

// isVisible reports whether text is printable ASCII without blanks.
func isVisible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// Address returns host and port of an authority, with the scheme's port if it has none: http://a and http://a:80 are one address.
func Address(scheme, authority string) string {
	if _, port, err := net.SplitHostPort(authority); err == nil && port != "" {
		return authority
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(strings.TrimSuffix(authority, ":"), "[]"), port)
}

// appendHead appends the request line and the header.
func (q *Request) appendHead(to []byte) []byte {
	to = append(to, q.Method...)
	to = append(to, ' ')
	to = append(to, q.Path...)
	to = append(to, " HTTP/1.1\r\nHost: "...)
	to = append(to, q.Authority...)
	to = append(to, "\r\n"...)
	for _, f := range q.Header {
		to = append(to, f.Name...)
		to = append(to, ": "...)
		to = append(to, f.Value...)
		to = append(to, "\r\n"...)
	}
	size := 0
	for _, piece := range q.Body {
		size += len(piece)
	}
	if size > 0 || q.Method == "POST" {
		to = append(to, "Content-Length: "...)
		to = strconv.AppendInt(to, int64(size), 10)
		to = append(to, "\r\n"...)
	}
	return append(to, "\r\n"...)
}

// peer is the target of the request.
func (q *Request) peer() peer { return peer{q.Scheme, q.Authority} }

// ProtocolError is an answer that is not HTTP, or whose framing is ambiguous. The text is a constant of this package and quotes nothing
// of the answer.
type ProtocolError string

// Error implements error.
func (e ProtocolError) Error() string { return "the answer breaks HTTP: " + string(e) }

// The faults of an answer.
const (
	errLineEnd      ProtocolError = "a line that does not end with CRLF"
	errStatusLine   ProtocolError = "the status line"
	errFieldName    ProtocolError = "the name of a header field"
	errFieldValue   ProtocolError = "the value of a header field"
	errFold         ProtocolError = "a header field in several lines"
	errHeadTooLarge ProtocolError = "a header of more than 64 KiB"
	errInterim      ProtocolError = "too many interim answers"
	errUpgrade      ProtocolError = "another protocol that was not asked for"
	errLength       ProtocolError = "the length"
	errLengths      ProtocolError = "different lengths"
	errBothFramings ProtocolError = "a length and a transfer coding"
	errCoding       ProtocolError = "a transfer coding other than chunked"
	errChunkSize    ProtocolError = "the size of a chunk"
	errChunkEnd     ProtocolError = "the end of a chunk"
	errChunkNote    ProtocolError = "the extension of a chunk"
	errTrailer      ProtocolError = "the trailer"
)

// RequestError is a request that is not sent because it would not be well-formed HTTP.
type RequestError string

// Error implements error.
func (e RequestError) Error() string { return "the request breaks HTTP: " + string(e) }

// The faults of a request.
const (
	errMethod    RequestError = "a method other than GET and POST"
	errAuthority RequestError = "the authority"
	errScheme    RequestError = "a scheme other than http and https"
	errPath      RequestError = "the path"
	errName      RequestError = "the name of a header field"
	errReserved  RequestError = "a header field that frames the request"
	errValue     RequestError = "the value of a header field"
)

// isToken reports whether text is a token (RFC 9110, 5.6.2).
func isToken[T string | []byte](text T) bool {
	for i := range len(text) {
		if !tokenBytes[text[i]] {
			return false
		}
	}
	return len(text) > 0
}

// tokenBytes are the bytes that a token may contain.
var tokenBytes = func() (is [256]bool) { //nolint:gochecknoglobals // a table that nothing changes
	for b := range is {
		is[b] = b < 0x80 && (b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", byte(b)) >= 0)
	}
	return is
}()

// isValue reports whether text can be the value of a header field: no control character but the tabulator (RFC 9110, 5.5). Bytes above
// ASCII are opaque.
func isValue[T string | []byte](text T) bool {
	for i := range len(text) {
		if b := text[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// same reports whether text is a word of ASCII letters, whatever its case. Without the lengths the Kelvin sign would be a k.
func same(text []byte, word string) bool {
	return len(text) == len(word) && strings.EqualFold(string(text), word)
}

func trim(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		text = text[1:]
	}
	for len(text) > 0 && (text[len(text)-1] == ' ' || text[len(text)-1] == '\t') {
		text = text[:len(text)-1]
	}
	return text
}
