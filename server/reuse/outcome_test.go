package reuse

import (
	"fmt"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// proves is how much of each branch a request may use.
type proves map[convcache.TicketID]convcache.Offer

// Offer implements offers.
func (p proves) Offer(b convcache.Branch) convcache.Offer { return p[b.ID] }

// The parts of the requests of these tests. A ticket of all parts but the last goes on with its conversation.
const system, question, answered, next = 1, 2, 3, 4

// proofOf is the proof of an attempt of a chat, or of a text completion, that goes on with a conversation.
func proofOf(api body.API, of proves, parts ...uint64) *Proof {
	return &Proof{offers: of, Admitted: &Admitted{
		Request: &request.Request{API: api, Length: body.PromptLength{Answered: api != body.Text}, Conversation: request.Conversation{Known: true}},
		outline: outline{parts: parts},
	}}
}

// branchOf is a branch of so many tokens that a request with these parts has left.
func branchOf(id byte, tokens int, parts ...uint64) convcache.KeyedBranch {
	b := convcache.KeyedBranch{Key: convcache.Key{1}, Branch: convcache.Branch{ID: convcache.TicketID{id}, Tokens: tokens}}
	if parts != nil {
		b.Outline = convcache.ChainKey{}.Outline(b.ID, parts)
	}
	return b
}

// note is a branch that was handed back.
func note(b convcache.KeyedBranch, to convcache.Holder) convcache.KeyedBranch {
	b.Prefill = to
	return b
}

// Every state of X-KV-Reuse, and what is learnt with it, by what was chosen and what prefill has told.
func TestOutcome(t *testing.T) {
	here, there := convcache.Holder{Instance: "p", Incarnation: "1"}, convcache.Holder{Instance: "q", Incarnation: "1"}
	parts := []uint64{system, question, answered, next}
	ticket := func(offer int, whole bool, differs string) Choice {
		return Choice{Offer: convcache.Offer{Tokens: offer, Whole: whole}, FreshAsOf: time.Now(), Differs: differs}
	}
	told := func(cached, prompt int) Told {
		return Told{By: here, Cached: cached, Prompt: prompt, IDs: true, Same: true, Keeps: true, Block: 16, PerToken: time.Millisecond}
	}
	whole := func(id byte, tokens int) proves {
		return proves{convcache.TicketID{id}: {Tokens: tokens, Whole: true}}
	}
	cut := func(id byte, tokens int) proves { return proves{convcache.TicketID{id}: {Tokens: tokens}} }
	shares := func(b convcache.KeyedBranch, tokens int) convcache.KeyedBranch {
		b.SharedPrefixTokens = tokens
		return b
	}
	prefilled := func(b convcache.KeyedBranch, by convcache.Holder, tokens int) convcache.KeyedBranch {
		b.Prefilled = []convcache.Prefilled{{Prefill: by, Tokens: tokens}}
		return b
	}
	mine := branchOf(1, 400, system, question)
	const miss = record.ReasonNothingStored
	for name, row := range map[string]struct {
		proof  *Proof
		found  Found
		choice Choice
		told   Told
		want   string // X-KV-Reuse, "age" left out
		saved  int    // milliseconds, one for each token
		shared int
		kept   facts.Finding
	}{
		"a miss, before prefill has answered":                       {choice: Choice{Why: miss}, told: Told{Cached: -1}, want: "miss;reason=nothing_stored"},
		"a miss, of a connector that tells no more than the number": {choice: Choice{Why: miss}, told: Told{Cached: 640}, want: "miss;reason=nothing_stored"},
		"a rewritten history":                                       {choice: Choice{Why: record.ReasonRewritten, Differs: "messages[1]"}, told: told(0, 500), want: "miss;reason=history_rewritten;differs=messages[1]"},
		"a prefix":                                                  {choice: Choice{Why: miss}, told: told(320, 500), want: "prefix;tokens=320;reason=nothing_stored"},
		"a prefix of less than a block":                             {choice: Choice{Why: miss}, told: told(15, 500), want: "miss;reason=nothing_stored"},
		"a prefix that is longer than the prompt":                   {choice: Choice{Why: miss}, told: told(512, 500), want: "prefix;tokens=500;reason=nothing_stored"},
		"a first turn, whose prefix others share":                   {proof: proofOf(body.Text, nil), choice: Choice{Why: record.ReasonFirstTurn}, told: told(96, 500), want: "prefix;tokens=96;reason=first_turn", shared: 96},
		"a miss whose cached tokens are not told":                   {choice: Choice{Why: miss}, told: told(-1, 500), want: "miss;reason=nothing_stored"},
		"a hit, before prefill has answered":                        {choice: ticket(400, true, ""), told: Told{Cached: -1}, want: "hit;tokens=400;proof=tokens"},
		"a hit whose cached tokens are not told":                    {choice: ticket(400, true, ""), told: told(-1, 900), want: "hit;tokens=400;proof=tokens", saved: 400},
		"a hit that prefill lacked":                                 {choice: ticket(400, true, ""), told: told(400, 900), want: "hit;tokens=400;read=400;proof=tokens;confirmed=400", saved: 400},
		"a hit with a system prompt that all share":                 {proof: proofOf(body.Chat, whole(1, 400)), found: Found{Branches: []convcache.KeyedBranch{shares(mine, 96)}}, choice: ticket(400, true, ""), told: told(400, 900), want: "hit;tokens=400;read=304;proof=tokens;confirmed=400", saved: 304, shared: 96},
		"a hit on an instance that had the prompt":                  {proof: proofOf(body.Chat, whole(1, 400)), found: Found{Branches: []convcache.KeyedBranch{prefilled(mine, here, 310)}}, choice: ticket(400, true, ""), told: told(400, 900), want: "hit;tokens=400;read=96;proof=tokens;confirmed=400", saved: 96},
		"a hit on one that was restarted":                           {proof: proofOf(body.Chat, whole(1, 400)), found: Found{Branches: []convcache.KeyedBranch{prefilled(mine, here, 310)}}, choice: ticket(400, true, ""), told: func() Told { n := told(400, 900); n.Same = false; return n }(), want: "hit;tokens=400;read=400;proof=tokens;confirmed=400", saved: 400},
		"a hit on another instance":                                 {proof: proofOf(body.Chat, whole(1, 400)), found: Found{Branches: []convcache.KeyedBranch{prefilled(mine, there, 310)}}, choice: ticket(400, true, ""), told: told(400, 900), want: "hit;tokens=400;read=400;proof=tokens;confirmed=400", saved: 400},
		"a hit that prefill had computed":                           {choice: ticket(400, true, ""), told: told(880, 900), want: "hit;tokens=400;read=0;proof=tokens;confirmed=880;reason=prefill_had_it"},
		"a hit of so few tokens that prefill computes":              {choice: ticket(400, true, ""), told: told(384, 900), want: "hit;tokens=400;read=0;proof=tokens;confirmed=384;reason=too_few_tokens"},
		"a hit that ends before what prefill lacked":                {choice: ticket(96, false, "messages[1]"), told: told(80, 900), want: "hit;tokens=96;read=0;proof=tokens;confirmed=80;reason=rewritten_early;differs=messages[1]"},
		"a cut hit": {choice: ticket(96, false, "messages[1]"), told: told(96, 900), want: "hit;tokens=96;read=96;proof=tokens;confirmed=96;differs=messages[1]", saved: 96},
		"a cut hit of a prompt that was replayed": {choice: ticket(96, false, "messages[1]"), told: told(96-16, 96), want: "hit;tokens=96;read=0;proof=tokens;confirmed=80;reason=too_few_tokens;differs=messages[1]"},
		"a ticket that went back":                 {choice: Choice{Offer: convcache.Offer{Tokens: 400, Whole: true}, Why: record.ReasonRetried}, told: Told{Cached: -1}, want: "miss;reason=retried_without_ticket"},

		"handed back, and found": {proof: proofOf(body.Chat, whole(1, 400), parts...), found: Found{Notes: []convcache.KeyedBranch{note(shares(mine, 96), here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(384, 900), want: "hit;tokens=288;read=288;proof=engine;confirmed=384", saved: 288, shared: 96, kept: facts.Yes},
		"handed back to another instance, which gives it a prefix": {proof: proofOf(body.Chat, whole(1, 400), parts...), found: Found{Notes: []convcache.KeyedBranch{note(mine, there)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(384, 900), want: "hit;tokens=384;read=0;proof=engine;confirmed=384;reason=prefill_had_it"},
		"handed back, of a prompt that was computed before": {proof: proofOf(body.Chat, whole(1, 400), parts...), found: Found{Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(880, 900), want: "hit;tokens=880;read=0;proof=engine;confirmed=880;reason=prefill_had_it", kept: facts.Yes},
		"handed back, and a part found": {proof: proofOf(body.Chat, cut(1, 200), parts...), found: Found{Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(192, 900), want: "hit;tokens=192;read=192;proof=engine;confirmed=192;differs=add_special_tokens", saved: 192, kept: facts.Yes},
		"handed back, and evicted": {proof: proofOf(body.Chat, whole(1, 400), parts...), found: Found{Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(0, 900), want: "miss;reason=handed_back_evicted", kept: facts.No},
		"handed back elsewhere": {proof: proofOf(body.Chat, whole(1, 400), parts...), found: Found{Notes: []convcache.KeyedBranch{note(mine, there)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(0, 900), want: "miss;reason=handed_back_elsewhere"},
		"handed back to an instance that was restarted": {proof: proofOf(body.Chat, whole(1, 400), parts...), found: Found{Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: func() Told { n := told(0, 900); n.Same = false; return n }(), want: "miss;reason=handed_back_elsewhere"},
		"handed back to a prefill that tells nothing": {proof: proofOf(body.Chat, whole(1, 400), parts...), found: Found{Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(-1, 900), want: "miss;reason=hand_back_unreported"},
		"handed back, beside a ticket that can't be used": {proof: proofOf(body.Chat, whole(1, 400), parts...), found: Found{Branches: []convcache.KeyedBranch{branchOf(2, 100)}, Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonInstanceGone},
			told: told(0, 900), want: "miss;reason=instance_gone"},
		"handed back of a history that was rewritten": {proof: proofOf(body.Chat, nil, system, 9, answered, next), found: Found{Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(0, 900), want: "miss;reason=history_rewritten;differs=add_generation_prompt"},
		"handed back, and the answer was changed": {proof: proofOf(body.Chat, nil, parts...), found: Found{Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(0, 900), want: "miss;reason=history_rewritten;differs=add_special_tokens"},
		"handed back by content, which others may have left": {proof: proofOf(body.Text, nil), found: Found{byContent: true, Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: func() Told { n := told(0, 900); n.IDs = false; return n }(), want: "miss;reason=first_turn"},
		"handed back by content, to a decode that sends no params": {proof: proofOf(body.Text, nil), found: Found{byContent: true, Notes: []convcache.KeyedBranch{note(mine, here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: func() Told { n := told(0, 900); n.IDs, n.Silent = false, true; return n }(), want: "miss;reason=engine_sends_no_params"},
		"handed back by content, by a chat that lacks what precedes the answer": {proof: proofOf(body.Chat, whole(1, 400), parts...), found: Found{byContent: true, Notes: []convcache.KeyedBranch{note(prefilled(mine, here, 320), here)}}, choice: Choice{Why: record.ReasonHandBackUnreported},
			told: told(0, 900), want: "miss;reason=handed_back_evicted", kept: facts.No},
	} {
		t.Run(name, func(t *testing.T) {
			if row.proof == nil {
				row.proof = proofOf(body.Chat, nil)
			}
			o := OutcomeOf(row.proof, &row.found, &row.choice, row.told)
			o.FreshAsOf = time.Now().Add(time.Hour) // an age of 0
			want := row.want
			if o.Hit {
				at := len("hit;tokens=" + fmt.Sprint(o.Offered))
				if o.Cached >= 0 {
					at += len(";read=" + fmt.Sprint(o.Read))
				}
				want = want[:at] + ";age=0.0" + want[at:]
			}
			if got := o.Header(time.Now()); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if o.Saved != time.Duration(row.saved)*time.Millisecond || o.Shared != row.shared || o.Kept != row.kept {
				t.Errorf("saved %v, shared %d, kept %v; want %d ms, %d, %v", o.Saved, o.Shared, o.Kept, row.saved, row.shared, row.kept)
			}
		})
	}
}

// What caches hold of the prompt from now on: this instance all of it, unless it keeps nothing, and the others what they had.
func TestOutcome_TellsWhatCachesHold(t *testing.T) {
	here, there := convcache.Holder{Instance: "p"}, convcache.Holder{Instance: "q"}
	b := branchOf(1, 400)
	b.Prefilled = []convcache.Prefilled{{Prefill: there, Tokens: 300}}
	p := proofOf(body.Chat, proves{b.ID: {Tokens: 200}})
	for name, row := range map[string]struct {
		told Told
		want string
	}{
		"all":         {Told{By: here, Prompt: 900, Same: true, Keeps: true}, "[{{q } 300} {{p } 900}]"},
		"with ids":    {Told{By: here, Prompt: 900, Same: true, Keeps: true, IDs: true}, "[{{q } 200} {{p } 900}]"},
		"no caching":  {Told{By: here, Prompt: 900, Same: true}, "[{{q } 300}]"},
		"no count":    {Told{By: here, Same: true, Keeps: true}, "[]"},
		"new process": {Told{By: here, Prompt: 900, Keeps: true}, "[{{p } 900}]"},
		"short":       {Told{By: here, Prompt: 100, Same: true, Keeps: true}, "[{{q } 100} {{p } 100}]"},
	} {
		o := OutcomeOf(p, &Found{Branches: []convcache.KeyedBranch{b}}, &Choice{Why: record.ReasonRewritten}, row.told)
		if got := fmt.Sprint(o.Prefilled); got != row.want {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
		}
	}
}

func TestRead_IsWhatPrefillLackedOfTheOffer(t *testing.T) {
	for name, tc := range map[string]struct{ offered, cached, own, want int }{
		"all of it, by a prefill that had nothing": {400, 400, 0, 400},
		"what its cache lacks":                     {400, 400, 304, 96},
		"a cache that holds more than the offer":   {696, 1184, 496, 0},
		"a cache that holds a little more":         {696, 704, 496, 0},
		"so few that prefill computes them":        {400, 352, 352, 0},
		"a cache that lost what it had":            {400, 400, 416, 0},
		"nothing told, nothing known of its cache": {400, -1, 0, 400},
		"nothing told, a part known to be its own": {400, -1, 304, 96},
	} {
		if got := read(tc.offered, tc.cached, tc.own); got != tc.want {
			t.Errorf("%s: read(%d, %d, %d) is %d, want %d", name, tc.offered, tc.cached, tc.own, got, tc.want)
		}
	}
	for name, tc := range map[string]struct{ handedBack, cached, own, want int }{
		"found, but for the end of a block":      {399, 384, 304, 80},
		"found with a block that the leg filled": {399, 400, 304, 95},
		"evicted":                                {399, 304, 304, 0},
		"a prompt that was computed before":      {399, 416, 304, 0},
		"handed back elsewhere":                  {0, 304, 304, 0},
		"nothing told":                           {399, -1, 304, 0},
	} {
		if got := kept(tc.handedBack, tc.cached, tc.own, 16); got != tc.want {
			t.Errorf("%s: kept(%d, %d, %d) is %d, want %d", name, tc.handedBack, tc.cached, tc.own, got, tc.want)
		}
	}
}

func TestEmpty_SaysWhyAHitSavedNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		read, offered, cached int
		whole                 bool
		want                  record.Reason
	}{
		"something was saved":                {96, 400, 400, true, ""},
		"nothing is told":                    {0, 400, -1, true, ""},
		"a replayed prompt":                  {0, 696, 1184, true, record.ReasonHadIt},
		"an edited prompt that was replayed": {0, 96, 304, false, record.ReasonHadIt},
		"a short answer":                     {0, 400, 384, true, record.ReasonFewTokens},
		"reasoning that was dropped":         {0, 384, 384, false, record.ReasonCutShort},
		"a clock in front":                   {0, 16, 16, false, record.ReasonCutShort},
	} {
		if got := empty(tc.read, tc.offered, tc.cached, tc.whole, record.ReasonFewTokens); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
