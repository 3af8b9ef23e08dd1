package http1

import (
	"net"
	"strconv"
	"strings"
)

// Request is one request.
type Request struct {
	Method string // GET or POST
	Scheme string // http or https
	// Authority is host, or host:port, an IPv6 address in brackets; it becomes the field Host as it is.
	Authority string
	Path      string // with the query, if any
	Header    []Field
	// Body is sent with its length, in pieces that are written one behind the other. Do forgets it as soon as it is written, and
	// nothing refers to it when Do has returned.
	Body [][]byte
	// Connected is called with the connection before anything is written; unless it was called, nothing was sent.
	Connected func(net.Conn)
}

// Field is one line of a header.
type Field struct{ Name, Value string }

// check reports whether the request is well-formed, so that nothing in it can end a line or frame another request.
func (q *Request) check() error {
	switch {
	case q.Method != "GET" && q.Method != "POST":
		return errMethod
	case q.Scheme != "http" && q.Scheme != "https":
		return errScheme
	case !isAuthority(q.Authority):
		return errAuthority
	case !strings.HasPrefix(q.Path, "/") || !isVisible(q.Path):
		return errPath
	}
	for _, f := range q.Header {
		switch {
		case !isToken(f.Name):
			return errName
		case frames(f.Name):
			return errReserved
		case !isValue(f.Value):
			return errValue
		}
	}
	return nil
}

// frames reports whether a header field is one that this package alone sends.
func frames(name string) bool {
	for _, ours := range [...]string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Upgrade", "Expect", "TE"} {
		if strings.EqualFold(name, ours) {
			return true
		}
	}
	return false
}

// isAuthority reports whether text is host or host:port without a user. Dialling finds every other fault.
func isAuthority(text string) bool {
	return text != "" && isVisible(text) && !strings.ContainsAny(text, `@/?#\"<>^{}|%`+"`")
}

// isVisible reports whether text is printable ASCII without blanks.
func isVisible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// address returns host and port of the authority.
func (q *Request) address() string {
	if _, port, err := net.SplitHostPort(q.Authority); err == nil && port != "" {
		return q.Authority
	}
	port := "80"
	if q.Scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(strings.TrimSuffix(q.Authority, ":"), "[]"), port)
}

// size is the length of the body.
func (q *Request) size() (n int) {
	for _, piece := range q.Body {
		n += len(piece)
	}
	return n
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
	if size := q.size(); size > 0 || q.Method == "POST" {
		to = append(to, "Content-Length: "...)
		to = strconv.AppendInt(to, int64(size), 10)
		to = append(to, "\r\n"...)
	}
	return append(to, "\r\n"...)
}

// peer is the target of the request.
func (q *Request) peer() peer { return peer{q.Scheme, q.Authority} }
