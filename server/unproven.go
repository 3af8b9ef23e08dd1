//go:build unproven

package server

// unproven makes every branch fit, as vLLM's example proxy takes it: answers are
// wrong then. It exists so that the real-engine suite can be seen to fail.
const unproven = true
