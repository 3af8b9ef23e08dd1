// Package msgpack reads MessagePack as engines send it: notifications of LMCache and KV events of vLLM.
//
// It promises that
//
//   - it allocates for the bytes that are present, never for a length that a message announces. A header that announces more
//     than the message has is malformed (decoders of whole messages allocate gigabytes for five bytes);
//   - [MaxDepth] bounds nesting;
//   - it skips unknown types (extensions, timestamps), keys that are not strings, and unread values of maps and arrays, so fields of
//     newer engines do no harm;
//   - no input makes it panic.
//
// It knows the whole format (github.com/msgpack/msgpack, spec.md) and no schema. github.com/tinylib/msgp reads the bytes of single
// values. It imports no other package of this module.
package msgpack

import (
	"errors"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// MaxDepth bounds the nesting of maps and arrays. Engines send four levels at most: the payload of a KV event, its list of events, an
// event, and its lists.
const MaxDepth = 16

// The kinds of values that readers look for.
const (
	Int    = msgp.IntType
	String = msgp.StrType
	Array  = msgp.ArrayType
)

// After ErrMalformed, and after an error of the function given to Map or Array, nothing more can be read. After ErrKind the value is
// still unread: it can be read as another kind, or skipped.
var (
	ErrMalformed = errors.New("malformed msgpack")
	ErrKind      = errors.New("msgpack value of another kind")
)

// Reader reads one message, value by value. It isn't safe for concurrent use.
type Reader struct {
	b     []byte // unread
	depth int    // of the current map or array
	ended bool   // an error has ended the reading
}

// NewReader returns a reader of b, which it aliases.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.b) }

// Kind returns the kind of the next value; all integers have one. msgp.InvalidType means that the message has ended or is malformed.
func (r *Reader) Kind() msgp.Type {
	v, err := r.next()
	if err != nil {
		return msgp.InvalidType
	}
	return v.kind
}

type value struct {
	kind msgp.Type
	// values is how many values a map or an array has. Keys are values, too.
	values uint64
	// rest is what follows the value, or the head of a map or an array.
	rest []byte
}

// next returns the next value. All its bytes are present; a map or an array has at least one byte for each value in it.
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

func (r *Reader) enter(v value) error {
	if r.depth == MaxDepth {
		return r.end(ErrMalformed)
	}
	r.depth++
	r.b = v.rest
	return nil
}

func (r *Reader) end(err error) error {
	r.ended = true
	return err
}

// The library's functions report a missing byte or another kind, which want has excluded, or an integer that the result's type can't
// represent.

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

// Int reads an integer; one that does not fit an int64 is ErrKind.
func (r *Reader) Int() (int64, error) { return integer(r, msgp.ReadInt64Bytes) }

// Uint reads an integer that is not negative.
func (r *Reader) Uint() (uint64, error) { return integer(r, msgp.ReadUint64Bytes) }

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

// Map reads a map and calls each for every key, also for a repeated one. each may read the value; else Map skips it. Map skips keys that
// are not strings, with their values. An error of each ends the reading.
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

// Array reads an array and calls each for every element. each may read element i; else Array skips it. An error of each ends the reading.
func (r *Reader) Array(each func(i int) error) error {
	return r.nested(msgp.ArrayType, 1, func(i int) error {
		return r.one(func() error { return each(i) })
	})
}

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
