package sse

// The functions of this file find the end of JSON values (RFC 8259) and check them on the way. Each takes the index of a
// first byte and returns the index behind the last one, or 0 if what stands there is not valid; 0 can't be the end of
// anything. They accept what encoding/json accepts, in the same pass as the walk over the members: measured on transfer
// parameters of 100 KB, 0.22 ms for both, where json.Valid alone takes 0.37 ms.

// maxDepth is the depth of nesting from which on encoding/json, too, refuses a text. It bounds the stack.
const maxDepth = 10000

// peek returns b[i], or 0, which is valid nowhere in JSON, behind the end.
func peek(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

// skipSpace returns the index of the first byte of b from i on that is not JSON white space, or len(b).
func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// valueEnd finds the end of a value that stands inside of depth arrays and objects.
func valueEnd(b []byte, i, depth int) int {
	switch peek(b, i) {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		if depth >= maxDepth {
			return 0
		}
		return compositeEnd(b, i, depth+1)
	case 't':
		return literalEnd(b, i, "true")
	case 'f':
		return literalEnd(b, i, "false")
	case 'n':
		return literalEnd(b, i, "null")
	}
	return numberEnd(b, i)
}

// compositeEnd finds the end of an array or object whose elements stand at depth.
func compositeEnd(b []byte, i, depth int) int {
	object := b[i] == '{'
	closing := byte(']')
	if object {
		closing = '}'
	}
	i = skipSpace(b, i+1)
	if peek(b, i) == closing {
		return i + 1
	}
	for {
		if object {
			_, i = nameEnd(b, i)
		}
		if i = valueEnd(b, i, depth); i == 0 {
			return 0
		}
		i = skipSpace(b, i)
		switch peek(b, i) {
		case closing:
			return i + 1
		case ',':
			i = skipSpace(b, i+1)
		default:
			return 0
		}
	}
}

// nameEnd finds the end of a member's name, and where its value begins: at len(b), where no value is, if the name or the
// colon is not valid.
func nameEnd(b []byte, i int) (end, value int) {
	end = stringEnd(b, i)
	if end == 0 {
		return i, len(b)
	}
	colon := skipSpace(b, end)
	if peek(b, colon) != ':' {
		return end, len(b)
	}
	return end, skipSpace(b, colon+1)
}

func stringEnd(b []byte, i int) int {
	if peek(b, i) != '"' {
		return 0
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return 0
		case c == '\\':
			if i = escapeEnd(b, i) - 1; i < 0 {
				return 0
			}
		}
	}
	return 0
}

func escapeEnd(b []byte, i int) int {
	switch peek(b, i+1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			switch c := peek(b, k); {
			case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
			default:
				return 0
			}
		}
		return i + 6
	}
	return 0
}

func literalEnd(b []byte, i int, literal string) int {
	if len(b)-i < len(literal) || string(b[i:i+len(literal)]) != literal {
		return 0
	}
	return i + len(literal)
}

func numberEnd(b []byte, i int) int {
	if peek(b, i) == '-' {
		i++
	}
	if peek(b, i) == '0' {
		i++
	} else if i = digitsEnd(b, i); i == 0 {
		return 0
	}
	if peek(b, i) == '.' {
		if i = digitsEnd(b, i+1); i == 0 {
			return 0
		}
	}
	if c := peek(b, i); c == 'e' || c == 'E' {
		i++
		if c := peek(b, i); c == '+' || c == '-' {
			i++
		}
		return digitsEnd(b, i)
	}
	return i
}

// digitsEnd finds the end of one or more digits.
func digitsEnd(b []byte, i int) int {
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return 0
	}
	return i
}
