package rawjson

import "fmt"

// The codes of errors.
const (
	CodeInvalidJSON  = "invalid_json"
	CodeInvalidUTF8  = "invalid_utf8"
	CodeDuplicateKey = "duplicate_key"
	CodeTooComplex   = "too_complex" // nested too deep, too many members, a name too long
)

// Error says what is wrong with a text and where, without repeating any of it but Key.
type Error struct {
	Code string
	Key  string // the unescaped top-level name at fault, "" if the error is not about one
	What string
	At   int // byte of the text
}

// Error says what is wrong and at which byte.
func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d", e.What, e.At) }
