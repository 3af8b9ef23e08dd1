package reuse

import (
	"cmp"
	"time"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// Told is what prefill's answer shows of its caches.
type Told struct {
	By       convcache.Holder // the incarnation that has answered with a hand-over, zero before that
	Cached   int              // prompt tokens that it took from caches, -1 if it does not report them
	Prompt   int              // tokens of the prompt, 0 if unknown
	Compared bool             // the prompt's ids are known, and were compared with the ids of branches
	Same     bool             // the engine has answered as this incarnation before; else it was restarted, and its cache is new
	Keeps    bool             // it keeps the prompt in its cache
	Silent   bool             // decode's answers bring no params
	Block    int              // its block size, 1 if unknown
	PerToken time.Duration    // its time to compute a token
}

// Tell returns what an answer of the attempt's prefill shows. It tells the incarnation which engine has answered.
func Tell(p *Proof, handover *upstream.Handover, prompt int) Told {
	prefill := p.Prefill
	return Told{
		By: pins.HolderOf(prefill), Cached: handover.Cached, Prompt: prompt, Compared: len(p.IDs.Prompt()) > 0,
		Same:   prefill.PrefixCache.AnsweredAs(handover.EngineID),
		Keeps:  !p.Quarantined && prefill.Known() && prefill.PrefixCache.On() != facts.No,
		Silent: p.Decode.Silence.Silent(), Block: max(1, prefill.BlockSize()), PerToken: prefill.Engine().PerToken(),
	}
}

// Outcome is what an attempt has reused.
type Outcome struct {
	record.Reuse
	Caches
	Kept facts.Finding // whether prefill's prefix cache still had the KV that was handed back
}

// Caches is what prefix caches hold of a prompt without any ticket.
type Caches struct {
	Prefilled []convcache.Prefilled // the caches of prefill instances from now on
	Shared    int                   // tokens that were cached before the conversation's first turn: what conversations share, such as a system prompt
}

// Nothing returns the reuse of a turn that has made no attempt.
func (a *Admitted) Nothing(f *Found) record.Reuse {
	return record.Reuse{
		Off: a.Conversation.Off, Proof: "tokens", Continues: a.Length.Answered || f.continues, Cached: -1,
	}
}

// OutcomeOf returns what an attempt has reused, by its choice and by what prefill has told.
func OutcomeOf(p *Proof, f *Found, c *Choice, told Told) Outcome {
	o := Outcome{Reuse: p.Nothing(f)}
	o.Hit, o.Reason, o.Differs, o.Offered, o.Cached = c.Why == "", c.Why, c.Differs, c.Offer.Tokens, told.Cached
	if c.branch != nil {
		o.FreshAsOf = c.branch.FreshAsOf
	}
	if told.By == (convcache.Holder{}) {
		return o
	}
	e := evidence{Proof: p, found: f, Told: told}
	own := e.own(&o)
	switch {
	case o.Hit:
		o.Read = read(o.Offered, o.Cached, own)
		replayed := told.Prompt > 0 && o.Cached+told.Block >= told.Prompt // the prompt ends within the ticket
		o.Reason = empty(o.Read, o.Offered, o.Cached, c.Offer.Whole || replayed, record.ReasonFewTokens)
	case len(f.Notes) > 0:
		e.handedBack(&o, own)
	}
	o.Saved = told.PerToken * time.Duration(o.Read)
	if prefix := min(o.Cached, cmp.Or(told.Prompt, o.Cached)); !o.Hit && prefix >= told.Block { // caches hold whole blocks
		o.Prefix = prefix
	}
	if told.Prompt > 0 && told.Keeps {
		o.Prefilled = convcache.AddPrefilled(o.Prefilled, convcache.Prefilled{Prefill: told.By, Tokens: told.Prompt})
	}
	return o
}

type evidence struct {
	*Proof
	Told
	found *Found
}

// same returns how many of a branch's tokens the prompt begins with; all of them if prefill has not told the prompt's ids.
func (e *evidence) same(b *convcache.KeyedBranch) int {
	if !e.Compared {
		return b.Tokens
	}
	return e.offers.Offer(b.Branch).Tokens
}

// own returns how many prompt tokens prefill's cache held apart from what was reused: the conversation's earlier prompts on this instance, in whole
// blocks, or the tokens that all prompts share. It records in o what the caches of prefill instances hold of the prompt because of earlier prompts.
func (e *evidence) own(o *Outcome) (own int) {
	for _, known := range [...][]convcache.KeyedBranch{e.found.Branches, e.found.Notes} {
		for i := range known {
			same := e.same(&known[i])
			o.Shared = max(o.Shared, min(known[i].SharedPrefixTokens, same))
			if !e.Same {
				continue
			}
			for _, has := range known[i].Prefilled {
				if has.Tokens = min(has.Tokens, same); has.Prefill == e.By {
					own = max(own, has.Tokens)
				}
				if has.Tokens = min(has.Tokens, e.Prompt); has.Tokens > 0 {
					o.Prefilled = convcache.AddPrefilled(o.Prefilled, has)
				}
			}
		}
	}
	if e.found.empty() && !e.Length.Answered {
		o.Shared = max(e.Cached, 0)
	}
	return max(own-own%e.Block, o.Shared)
}

// handedBack sets what prefill's own caches were worth to a turn without a ticket whose conversation was handed back: what they had beyond the tokens
// that prefill has by itself. The proof is the engine's: its prefix cache compares the tokens.
func (e *evidence) handedBack(o *Outcome, own int) {
	notes := e.found.Notes
	var here, whole, ours bool // handed back to this engine; the prompt has all of that; some note may be of this conversation
	var most, longest int      // tokens that the prompt begins with: handed back to this engine, and to any
	for i := range notes {
		n := &notes[i]
		same := e.same(n)
		if longest, ours = max(longest, same), ours || e.API != body.Text && !e.anothers(n); n.Prefill == e.By {
			here, most, whole = true, max(most, same), whole || same == n.Tokens
		}
	}
	here = here && e.Same
	// If prefill finds more than the tokens that conversations share, it has found something that was handed back. If the notes may belong to others who
	// began alike, it must also find more than it had of their prompts.
	expected := o.Shared
	if e.found.byContent && !ours {
		expected = own
	}
	switch beyond := e.Cached - expected; {
	case beyond > 0:
		o.Hit, o.Differs, o.Proof, o.Offered, o.FreshAsOf = true, "", "engine", beyond, notes[0].FreshAsOf
		o.Read = kept(most, e.Cached, own, e.Block)
		o.Reason = empty(o.Read, most, e.Cached, whole, record.ReasonHandedBackEvicted)
		if !whole {
			o.Differs = e.differs(notes)
		}
		if here {
			o.Kept = facts.Yes
		}
	case !e.found.allHandedBack(), e.Cached < 0:
	case e.Compared && longest > expected: // prefill lacks handed-back tokens with which the prompt begins
		if o.Reason = record.ReasonHandedBackElsewhere; here {
			o.Reason, o.Kept = record.ReasonHandedBackEvicted, facts.No
		}
	case e.found.byContent: // the notes may be of others who began alike
		o.Reason = e.unstored(e.Silent)
	case e.Compared:
		o.Reason, o.Differs = record.ReasonRewritten, e.differs(notes)
	}
}

// read returns how many tokens of an offer prefill has read. cached is what prefill reports as cached or read, -1 if nothing; own is what its cache
// certainly had. vLLM reads all of an offer that its cache lacks. It reads nothing if that is less than kv_recompute_threshold, or if its cache holds
// more than the offer (get_num_new_matched_tokens in nixl/base_scheduler.py of 0.33); then it reports another number than the offer.
func read(offered, cached, own int) int {
	if cached >= 0 && cached != offered {
		return 0
	}
	return max(0, offered-own)
}

// kept returns how many handed-back tokens prefill had in its cache, beyond its own. If it had a block more, it has computed this prompt before, and
// the hand-back gave it nothing.
func kept(handedBack, cached, own, block int) int {
	if cached >= handedBack+block {
		return 0
	}
	return max(0, min(handedBack, cached)-own)
}

// empty returns why a hit saved nothing, "" if it saved something or prefill does not report it. whole says that the request goes on with all that
// the ticket covers; then fewer is the reason why prefill found less.
func empty(read, offered, cached int, whole bool, fewer record.Reason) record.Reason {
	switch {
	case read > 0 || cached < 0:
		return ""
	case cached >= offered && whole || cached > offered:
		return record.ReasonHadIt
	case whole:
		return fewer
	}
	return record.ReasonCutShort
}
