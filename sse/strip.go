package sse

import "strings"

// memberSearch finds events that may contain the stripped member.
type memberSearch struct {
	needle []byte // an event that contains neither needle nor escape does not contain the member; nil without a member
	escape []byte
	null   []byte // the end of a chunk whose last member is the member with the value null; needle is part of it

	searched [32]byte // array of null, unless null is longer
	escapes  [4]byte  // array of escape
}

// open begins to search for a member.
func (m *memberSearch) open(name string) {
	// The closing quote excludes the name within a JSON string, where a backslash follows the name. The search leaves the opening
	// quote out and so begins with a rarer byte; chunks are full of quotes.
	m.null = append(append(append(m.searched[:0], `}],"`...), name...), `":null}`...)
	m.needle = m.null[len(`}],"`) : len(m.null)-len(`:null}`)]
	// Escapes of ASCII characters begin with \u00; escapes of emoji and most scripts do not.
	m.escape = append(m.escapes[:0], `\u00`...)
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"\/`, c) }) {
		m.escape = m.escape[:1]
	}
}
