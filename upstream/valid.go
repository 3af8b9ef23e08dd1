package upstream

// ValidJSON reports whether data is one JSON value of any kind, with white space
// around it or none, that is nested 64 levels deep at most. Everything that an
// engine sends is checked by it before anything else reads it: a checker that
// recurses without a bound (gjson.ValidBytes) overflows the stack at a few million
// levels, and a Go process does not survive that. No engine nests its answers
// deeper than a dozen.
func ValidJSON(data []byte) bool {
	s := scanner{data: data}
	s.space()
	if s.skip(0) != nil {
		return false
	}
	s.space()
	return s.pos == len(data)
}
