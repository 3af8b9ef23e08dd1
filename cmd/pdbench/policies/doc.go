// Package policies shows what picking instances is worth. It runs four prefill and four decode engines of unequal speed, simulated, and
// Carryover in front of them, holds the same conversations through them with one policy after the other, and prints the time to the first
// token in the clock of the engines, the hit rate, and which prefill instance got how much. Then it does so once more with the first policy,
// kills one instance of each role in the middle, and starts it again.
//
// It fails if auto is not a quarter faster than round robin in the 95th percentile, if its hit rate is more than three points below that of
// affinity, if any KV was read wrongly or twice, or if a request is lost that had not reached a killed instance.
package policies
