// Package handback shows the value of handing KV back to prefill. It runs four prefill and four decode engines, simulated, and Carryover in
// front of them. It holds the same conversations with each mode of --hand-back. It prints how much of decode's KV cache was pinned, what was
// computed again, how long next turns took to their first token, and what the hand-backs cost, all in the clock of the engines. Then it
// repeats this with turns that come twenty minutes after the turn before.
//
// It fails if a bar in judge.go does not hold, a turn fails, an answer is not the ordered one, or an engine has read KV that it should not read.
package handback
