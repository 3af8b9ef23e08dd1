package record

import "time"

// FollowUp reports whether the turn could have reused something: it goes on with a conversation, and its client wants reuse. The share of
// hits is hits divided by follow-ups, everywhere. Every hit is a follow-up; a turn that opens its conversation is none.
func (r *Reuse) FollowUp() bool { return r.Continues && !r.Off }

// Prompt returns how many tokens the prompt had, by decode's usage; where that was not read, as many as are known to be of it.
func (r *Turn) Prompt() int { return max(r.Answer.PromptTokens, r.Reuse.Cached, r.Reuse.Offered, 0) }

// HitTTFT returns the time to the first token of a hit, and what it would have been without reuse: longer by the time in which prefill
// would have computed the tokens that it did not (Reuse.Saved). ok is false for turns that are no hits, for whole answers, and for hits
// that spared prefill tokens while its speed was not known.
func (r *Turn) HitTTFT() (with, without time.Duration, ok bool) {
	ok = r.Reuse.Hit && r.TTFT > 0 && (r.Reuse.Saved > 0 || r.Reuse.Read == 0)
	return r.TTFT, r.TTFT + r.Reuse.Saved, ok
}
