// Package handback shows what handing KV back to prefill is worth. It runs four prefill and four decode engines, simulated, and Carryover in
// front of them, holds the same conversations through them with each mode of --hand-back, and prints what decode's KV cache was pinned for,
// what was computed again, how long next turns took to their first token, and what the hand-backs cost, all in the clock of the engines.
// Then it does so with turns that come twenty minutes after the turn before.
//
// It fails if one of the bars in judge.go does not hold, if a turn fails, if an answer is not the one that was ordered, or if an engine has
// read anything that it should not have.
package handback
