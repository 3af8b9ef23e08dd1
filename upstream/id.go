package upstream

import (
	"crypto/rand"
	"encoding/hex"
)

// NewID returns a random id for a leg, which nobody can guess.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
