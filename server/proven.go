//go:build !unproven

package server

// unproven turns the token comparison off. It is true only in the binary that the
// real-engine suite uses to show that it can fail (build tag unproven).
const unproven = false
