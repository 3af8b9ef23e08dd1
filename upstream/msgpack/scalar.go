package msgpack

import (
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// The library's functions report whether bytes are missing or the kind is another one; want has excluded both. What errors
// they have left is an integer that the result's type can't represent.

// Text reads a string. For a string that is not valid UTF-8 it returns ErrKind.
func (r *Reader) Text() (string, error) {
	v, err := r.want(String, String)
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
	v, err := r.want(Bytes, String)
	if err != nil {
		return nil, err
	}
	read := msgp.ReadBytesZC
	if v.kind == String {
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
	v, err := r.want(Int, Int)
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
	if err != nil || v.kind != Nil {
		return false
	}
	r.b = v.rest
	return true
}
