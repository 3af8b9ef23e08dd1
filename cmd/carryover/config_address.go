package main

import (
	"strconv"

	"carryover/upstream"
)

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func isHost(text string) bool { return upstream.IsHost(text) }

// isVisible reports whether text is not empty and consists of printable ASCII without spaces.
func isVisible(text string) bool {
	for _, b := range []byte(text) {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return text != ""
}
