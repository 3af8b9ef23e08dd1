// Package handback shows the value of handing KV back to prefill. It runs four prefill and four decode engines, simulated, and Carryover in
// front of them. It holds the same conversations with each mode of --hand-back, and prints, in the clock of the engines:
//
//   - for how many token-seconds decode's KV cache was pinned
//   - what was computed again
//   - how long next turns took to their first token
//   - what the hand-backs cost
//
// Then it repeats this with turns that come twenty minutes after the turn before. It fails if a bar in judge.go does not hold, if a turn
// fails, if an answer is not the ordered one, or if an engine has read KV that it should not read.
package handback
