package msgpack

import (
	"math"
	"unicode/utf8"
)

// Text reads a string. For a string that is not valid UTF-8 it returns ErrKind.
func (r *Reader) Text() (string, error) {
	h, err := r.want(String, String)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(r.b[h.size : h.size+int(h.n)]) {
		return "", ErrKind
	}
	return string(r.take(h)), nil
}

// Bytes reads binary data or a string; the result aliases the message. Writers of the format's first version have only strings.
func (r *Reader) Bytes() ([]byte, error) {
	h, err := r.want(Bytes, String)
	if err != nil {
		return nil, err
	}
	return r.take(h), nil
}

// Int reads an integer. If the integer does not fit an int64, it returns ErrKind.
func (r *Reader) Int() (int64, error) {
	h, err := r.want(Int, Int)
	if err != nil {
		return 0, err
	}
	v, negative := r.integer(h)
	if !negative && v > math.MaxInt64 {
		return 0, ErrKind
	}
	r.take(h)
	return int64(v), nil
}

// Uint reads an integer that is not negative.
func (r *Reader) Uint() (uint64, error) {
	h, err := r.want(Int, Int)
	if err != nil {
		return 0, err
	}
	v, negative := r.integer(h)
	if negative {
		return 0, ErrKind
	}
	r.take(h)
	return v, nil
}

// integer returns the next integer in two's complement, and whether it is negative.
func (r *Reader) integer(h head) (v uint64, negative bool) {
	c := r.b[0]
	if h.n == 0 {
		signed := int64(int8(c)) // 0 to 127, and -32 to -1
		return uint64(signed), signed < 0
	}
	v = unsigned(r.b[1 : 1+h.n])
	if c <= 0xcf {
		return v, false
	}
	unused := 64 - 8*h.n
	signed := int64(v<<unused) >> unused
	return uint64(signed), signed < 0
}

// Float reads a number. An integer becomes the nearest float.
func (r *Reader) Float() (float64, error) {
	h, err := r.want(Float, Int)
	if err != nil {
		return 0, err
	}
	if h.kind == Int {
		v, negative := r.integer(h)
		r.take(h)
		if negative {
			return float64(int64(v)), nil
		}
		return float64(v), nil
	}
	bits := unsigned(r.take(h))
	if h.n == 4 {
		return float64(math.Float32frombits(uint32(bits))), nil
	}
	return math.Float64frombits(bits), nil
}

// Bool reads a boolean.
func (r *Reader) Bool() (bool, error) {
	h, err := r.want(Bool, Bool)
	if err != nil {
		return false, err
	}
	v := r.b[0] == 0xc3
	r.take(h)
	return v, nil
}

// Nil reads the next value if it is nil, and reports whether it was.
func (r *Reader) Nil() bool {
	h, err := r.head()
	if err != nil || h.kind != Nil {
		return false
	}
	r.take(h)
	return true
}
