package msgpack

import "errors"

// MaxDepth is how deep maps and arrays may nest. Engines send four levels at most: the payload of a KV event, its list of
// events, an event, and its lists.
const MaxDepth = 16

// Kind says what a value is.
type Kind int

// The kinds. Invalid means that there is no value: the message has ended or is malformed.
const (
	Invalid Kind = iota
	Nil
	Bool
	Int
	Float
	String
	Bytes
	Array
	Map
	Ext
)

// The errors of a Reader. After ErrMalformed, and after an error of the function given to Map or Array, nothing more can be
// read. After ErrKind the value is still unread: it can be read as another kind, or skipped.
var (
	ErrMalformed = errors.New("malformed msgpack")
	ErrKind      = errors.New("msgpack value of another kind")
)

// Reader reads one message, value by value. It isn't safe for concurrent use.
type Reader struct {
	b     []byte // bytes that are left
	depth int    // depth of the map or array that is being read
	ended bool   // an error has ended the reading
}

// NewReader returns a reader of b, which it aliases.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.b) }

// Kind returns the kind of the next value.
func (r *Reader) Kind() Kind {
	h, err := r.head()
	if err != nil {
		return Invalid
	}
	return h.kind
}

// head returns the head of the next value. All bytes of the value are present; for a map or an array, at least one byte for
// each value in it.
func (r *Reader) head() (head, error) {
	if r.ended {
		return head{}, ErrMalformed
	}
	h := headOf(r.b)
	if h.kind == Invalid || h.least() > uint64(len(r.b)-h.size) {
		return head{}, ErrMalformed
	}
	return h, nil
}

// want is head for a value of one of two kinds.
func (r *Reader) want(kind, other Kind) (head, error) {
	h, err := r.head()
	if err != nil {
		r.ended = true
		return h, err
	}
	if h.kind != kind && h.kind != other {
		return h, ErrKind
	}
	return h, nil
}

// take removes a value that is neither a map nor an array, and returns the bytes behind its head.
func (r *Reader) take(h head) []byte {
	end := h.size + int(h.n) // head has checked that these bytes are present
	payload := r.b[h.size:end:end]
	r.b = r.b[end:]
	return payload
}

// end ends the reading with an error.
func (r *Reader) end(err error) error {
	r.ended = true
	return err
}
