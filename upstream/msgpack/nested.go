package msgpack

// Map reads a map and calls each for every key. each must read or skip the value; what it leaves unread is skipped. Map skips keys
// that are not strings, with their values. If a key occurs twice, each is called twice. An error of each ends the reading.
func (r *Reader) Map(each func(key string) error) error {
	return r.nested(Map, 2, func(int) error {
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

// Array reads an array and calls each for every element. each must read or skip element i; what it leaves unread is skipped. An
// error of each ends the reading.
func (r *Reader) Array(each func(i int) error) error {
	return r.nested(Array, 1, func(i int) error {
		return r.one(func() error { return each(i) })
	})
}

// nested reads the entries of a map or an array, of so many values each.
func (r *Reader) nested(kind Kind, values uint64, entry func(i int) error) error {
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
	if v.kind != Map && v.kind != Array {
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
