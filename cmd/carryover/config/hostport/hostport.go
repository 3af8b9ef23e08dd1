// Package hostport says which texts are a port, and which may stand in an address.
package hostport

import (
	"strconv"
)

// IsPort reports whether text is a port from 1 to 65535.
func IsPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// IsVisible reports whether text is not empty and consists of printable ASCII without spaces.
func IsVisible(text string) bool {
	for _, b := range []byte(text) {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return text != ""
}
