// Package msgpack reads MessagePack as engines send it: notifications of LMCache and
// KV events of vLLM.
//
// It promises that
//
//   - reading allocates for the bytes that are present and never for a length that a message announces. A header that
//     announces more than the message has bytes for is malformed (decoders of whole messages allocate gigabytes for five bytes);
//   - [MaxDepth] bounds nesting;
//   - fields of newer engines do no harm: it skips unknown types (extensions, timestamps), keys that are not strings, and
//     whatever a caller does not read of a map or an array;
//   - no input makes it panic.
//
// It knows the whole format (github.com/msgpack/msgpack, spec.md) and no schema. The bytes of single values are read by
// github.com/tinylib/msgp. It imports no other package of this module.
package msgpack

import (
	"errors"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// MaxDepth is how deep maps and arrays may nest. Engines send four levels at most: the payload of a KV event, its list of
// events, an event, and its lists.
const MaxDepth = 16

// The kinds of values that readers look for.
const (
	Int    = msgp.IntType
	String = msgp.StrType
	Array  = msgp.ArrayType
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

// Kind returns the kind of the next value; all integers have one. msgp.InvalidType means that there is no value: the message has ended or
// is malformed.
func (r *Reader) Kind() msgp.Type {
	v, err := r.next()
	if err != nil {
		return msgp.InvalidType
	}
	return v.kind
}

// value is what the next bytes contain.
type value struct {
	kind msgp.Type
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
	v := value{kind: msgp.NextType(r.b)}
	var n uint32
	var err error
	switch v.kind {
	case msgp.MapType:
		n, v.rest, err = msgp.ReadMapHeaderBytes(r.b)
		v.values = 2 * uint64(n)
	case msgp.ArrayType:
		n, v.rest, err = msgp.ReadArrayHeaderBytes(r.b)
		v.values = uint64(n)
	case msgp.UintType:
		v.kind = msgp.IntType
		fallthrough
	default:
		v.rest, err = msgp.Skip(r.b)
	}
	if err != nil || v.values > uint64(len(v.rest)) {
		return value{}, ErrMalformed
	}
	return v, nil
}

// want is next for a value of one of two kinds.
func (r *Reader) want(kind, other msgp.Type) (value, error) {
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

// The library's functions report whether bytes are missing or the kind is another one; want has excluded both. What errors
// they have left is an integer that the result's type can't represent.

// Text reads a string. For a string that is not valid UTF-8 it returns ErrKind.
func (r *Reader) Text() (string, error) {
	v, err := r.want(msgp.StrType, msgp.StrType)
	if err != nil {
		return "", err
	}
	text, _, _ := msgp.ReadStringZC(r.b)
	if !utf8.Valid(text) {
		return "", ErrKind
	}
	r.b = v.rest
	return string(text), nil
}

// Bytes reads binary data or a string; the result aliases the message. Writers of the format's first version have only strings.
func (r *Reader) Bytes() ([]byte, error) {
	v, err := r.want(msgp.BinType, msgp.StrType)
	if err != nil {
		return nil, err
	}
	read := msgp.ReadBytesZC
	if v.kind == msgp.StrType {
		read = msgp.ReadStringZC
	}
	raw, _, _ := read(r.b)
	r.b = v.rest
	return raw[:len(raw):len(raw)], nil
}

// Int reads an integer. If the integer does not fit an int64, it returns ErrKind.
func (r *Reader) Int() (int64, error) { return integer(r, msgp.ReadInt64Bytes) }

// Uint reads an integer that is not negative.
func (r *Reader) Uint() (uint64, error) { return integer(r, msgp.ReadUint64Bytes) }

// integer reads an integer by a function of the library.
func integer[T int64 | uint64](r *Reader, read func([]byte) (T, []byte, error)) (T, error) {
	v, err := r.want(msgp.IntType, msgp.IntType)
	if err != nil {
		return 0, err
	}
	n, _, err := read(r.b)
	if err != nil {
		return 0, ErrKind
	}
	r.b = v.rest
	return n, nil
}

// Nil reads the next value if it is nil, and reports whether it was.
func (r *Reader) Nil() bool {
	v, err := r.next()
	if err != nil || v.kind != msgp.NilType {
		return false
	}
	r.b = v.rest
	return true
}

// Map reads a map and calls each for every key. each must read or skip the value; what it leaves unread is skipped. Map skips keys
// that are not strings, with their values. If a key occurs twice, each is called twice. An error of each ends the reading.
func (r *Reader) Map(each func(key string) error) error {
	return r.nested(msgp.MapType, 2, func(int) error {
		if r.Kind() != msgp.StrType {
			if err := r.Skip(); err != nil {
				return err
			}
			return r.Skip()
		}
		key, err := r.Bytes()
		if err != nil {
			return err
		}
		return r.one(func() error { return each(string(key)) })
	})
}

// Array reads an array and calls each for every element. each must read or skip element i; what it leaves unread is skipped. An
// error of each ends the reading.
func (r *Reader) Array(each func(i int) error) error {
	return r.nested(msgp.ArrayType, 1, func(i int) error {
		return r.one(func() error { return each(i) })
	})
}

// nested reads the entries of a map or an array, of so many values each.
func (r *Reader) nested(kind msgp.Type, values uint64, entry func(i int) error) error {
	v, err := r.want(kind, kind)
	if err != nil {
		return err
	}
	if err := r.enter(v); err != nil {
		return err
	}
	for i := range int(v.values / values) { // each entry takes a byte or ends the loop
		if err := entry(i); err != nil {
			return r.end(err)
		}
	}
	r.depth--
	return nil
}

// one lets read read a value, and skips the value if read does not.
func (r *Reader) one(read func() error) error {
	left := len(r.b)
	if err := read(); err != nil {
		return err
	}
	if r.ended { // by an error that read did not return
		return ErrMalformed
	}
	if len(r.b) < left {
		return nil
	}
	return r.Skip()
}

// Skip reads any value.
func (r *Reader) Skip() error {
	v, err := r.next()
	if err != nil {
		return r.end(err)
	}
	if v.kind != msgp.MapType && v.kind != msgp.ArrayType {
		r.b = v.rest
		return nil
	}
	if err := r.enter(v); err != nil {
		return err
	}
	for range v.values {
		if err := r.Skip(); err != nil {
			return err
		}
	}
	r.depth--
	return nil
}
