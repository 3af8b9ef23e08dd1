package msgpack

import (
	"errors"

	"github.com/tinylib/msgp/msgp"
)

// MaxDepth is how deep maps and arrays may nest. Engines send four levels at most: the payload of a KV event, its list of
// events, an event, and its lists.
const MaxDepth = 16

// Kind says what a value is.
type Kind int

// The kinds. Invalid means that there is no value: the message has ended or is malformed.
const (
	Invalid Kind = iota
	Nil
	Int
	String
	Bytes
	Array
	Map
	Other // a boolean, a float or an extension
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
	v, err := r.next()
	if err != nil {
		return Invalid
	}
	return v.kind
}

// value is what the next bytes contain.
type value struct {
	kind Kind
	// values is how many values a map or an array has. Keys are values, too.
	values uint64
	// rest is what follows the value, or, of a map or an array, its head.
	rest []byte
}

// next returns the next value. All its bytes are present; of a map or an array, at least one byte for each value in it.
func (r *Reader) next() (value, error) {
	if r.ended {
		return value{}, ErrMalformed
	}
	v := value{kind: kindOf(r.b)}
	var n uint32
	var err error
	switch v.kind {
	case Map:
		n, v.rest, err = msgp.ReadMapHeaderBytes(r.b)
		v.values = 2 * uint64(n)
	case Array:
		n, v.rest, err = msgp.ReadArrayHeaderBytes(r.b)
		v.values = uint64(n)
	default:
		v.rest, err = msgp.Skip(r.b)
	}
	if err != nil || v.values > uint64(len(v.rest)) {
		return value{}, ErrMalformed
	}
	return v, nil
}

// kindOf returns the kind that the first byte names.
func kindOf(b []byte) Kind {
	switch msgp.NextType(b) {
	case msgp.NilType:
		return Nil
	case msgp.IntType, msgp.UintType:
		return Int
	case msgp.StrType:
		return String
	case msgp.BinType:
		return Bytes
	case msgp.ArrayType:
		return Array
	case msgp.MapType:
		return Map
	case msgp.InvalidType:
		return Invalid
	default: // some extensions have a name in the library
		return Other
	}
}

// want is next for a value of one of two kinds.
func (r *Reader) want(kind, other Kind) (value, error) {
	v, err := r.next()
	if err != nil {
		return v, r.end(err)
	}
	if v.kind != kind && v.kind != other {
		return v, ErrKind
	}
	return v, nil
}

// enter goes into a map or an array.
func (r *Reader) enter(v value) error {
	if r.depth == MaxDepth {
		return r.end(ErrMalformed)
	}
	r.depth++
	r.b = v.rest
	return nil
}

// end ends the reading with an error.
func (r *Reader) end(err error) error {
	r.ended = true
	return err
}
