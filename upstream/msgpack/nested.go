package msgpack

// Map reads a map. each must read or skip the value of its key; what it leaves unread is skipped. Keys that are no strings
// are skipped with their values. Of a key that is there twice each hears twice. An error of each ends the reading.
func (r *Reader) Map(each func(key string) error) error {
	return r.nested(Map, func(int) error {
		if r.Kind() != String {
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

// Array reads an array. each must read or skip element i; what it leaves unread is skipped. An error of each ends the
// reading.
func (r *Reader) Array(each func(i int) error) error {
	return r.nested(Array, func(i int) error {
		return r.one(func() error { return each(i) })
	})
}

// nested reads the entries of a map or an array.
func (r *Reader) nested(kind Kind, entry func(i int) error) error {
	h, err := r.want(kind, kind)
	if err != nil {
		return err
	}
	if r.depth == MaxDepth {
		return r.end(ErrMalformed)
	}
	r.depth++
	r.b = r.b[h.size:]
	for i := range int(h.n) { // each takes a byte or ends the loop
		if err := entry(i); err != nil {
			return r.end(err)
		}
	}
	r.depth--
	return nil
}

// one has a value read, or skips it.
func (r *Reader) one(read func() error) error {
	left := len(r.b)
	if err := read(); err != nil {
		return err
	}
	if r.ended { // by an error that read has kept for itself
		return ErrMalformed
	}
	if len(r.b) < left {
		return nil
	}
	return r.Skip()
}

// Skip reads any value.
func (r *Reader) Skip() error {
	h, err := r.head()
	if err != nil {
		return r.end(err)
	}
	if h.kind != Map && h.kind != Array {
		r.take(h)
		return nil
	}
	if r.depth == MaxDepth {
		return r.end(ErrMalformed)
	}
	r.depth++
	r.b = r.b[h.size:]
	for range h.least() {
		if err := r.Skip(); err != nil {
			return err
		}
	}
	r.depth--
	return nil
}
