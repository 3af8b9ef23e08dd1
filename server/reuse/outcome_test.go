package reuse

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
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
		parts:   parts,
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
		return Choice{Offer: convcache.Offer{Tokens: offer, Whole: whole}, Differs: differs}
	}
	told := func(cached, prompt int) Told {
		return Told{By: here, Cached: cached, Prompt: prompt, Compared: true, Same: true, Keeps: true, Block: 16, PerToken: time.Millisecond}
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
	all, half, none := whole(1, 400), cut(1, 200), proves{}
	restarted, told0 := told(400, 900), told(0, 900)
	restarted.Same = false
	moved, silent := told0, told0
	moved.Same, silent.Compared, silent.Silent = false, false, true
	asked := proofOf(body.Text, nil) // of engines, of which no ids are known
	engines := fleet.New(fleet.Config{})
	engines.Set([]upstream.Instance{{Name: "p", Role: upstream.RolePrefill}, {Name: "d", Role: upstream.RoleDecode}})
	asked.Prefill, asked.Decode = engines.Engines(upstream.RolePrefill)[0].Last(), engines.Engines(upstream.RoleDecode)[0].Last()
	unproven := proofOf(body.Chat, nil, parts...)
	unproven.offers = proves{}
	hit, text := ticket(400, true, ""), proofOf(body.Text, nil)
	cutHit := ticket(96, false, "messages[1]")
	missed := func(why string) Choice { return Choice{Why: why} }
	nothing, gone, unreported := missed(record.ReasonNothingStored), missed(record.ReasonInstanceGone), missed(record.ReasonHandBackUnreported)
	tickets := func(all ...convcache.KeyedBranch) Found { return Found{Branches: all} }
	notes := func(b convcache.KeyedBranch, to convcache.Holder) Found {
		return Found{Notes: []convcache.KeyedBranch{note(b, to)}}
	}
	byContent := func(f Found) Found {
		f.byContent = true
		return f
	}
	beside := notes(mine, here)
	beside.Branches = tickets(branchOf(2, 100)).Branches
	chat := func(of proves) *Proof { return proofOf(body.Chat, of, parts...) }
	check := func(name string, p *Proof, found Found, choice Choice, told Told, want string) {
		o := OutcomeOf(p, &found, &choice, told)
		got := regexp.MustCompile(";age=[0-9.]+").ReplaceAllString(o.Header(), "")
		if o.Saved > 0 {
			got += fmt.Sprint(" saves ", o.Saved.Milliseconds())
		}
		if o.Shared > 0 {
			got += fmt.Sprint(" shares ", o.Shared)
		}
		if o.Kept != 0 {
			got += " kept " + map[bool]string{true: "yes", false: "no"}[o.Kept == facts.Yes]
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	for name, row := range map[string]struct { // beside nothing that was found
		choice Choice
		told   Told
		want   string // X-KV-Reuse, "age" left out; then the milliseconds that were saved, one for each token, the shared tokens, and what was kept
	}{
		"a miss, before prefill has answered":                       {nothing, Told{Cached: -1}, "miss;reason=nothing_stored"},
		"a miss, of a connector that tells no more than the number": {nothing, Told{Cached: 640}, "miss;reason=nothing_stored"},
		"a rewritten history":                                       {Choice{Why: record.ReasonRewritten, Differs: "messages[1]"}, told0, "miss;reason=history_rewritten;differs=messages[1]"},
		"a prefix":                                                  {nothing, told(320, 500), "prefix;tokens=320;reason=nothing_stored"},
		"a prefix of less than a block":                             {nothing, told(15, 500), "miss;reason=nothing_stored"},
		"a prefix that is longer than the prompt":                   {nothing, told(512, 500), "prefix;tokens=500;reason=nothing_stored"},
		"a miss whose cached tokens are not told":                   {nothing, told(-1, 500), "miss;reason=nothing_stored"},
		"a hit, before prefill has answered":                        {hit, Told{Cached: -1}, "hit;tokens=400;proof=tokens"},
		"a hit whose cached tokens are not told":                    {hit, told(-1, 900), "hit;tokens=400;proof=tokens saves 400"},
		"a hit that prefill lacked":                                 {hit, told(400, 900), "hit;tokens=400;read=400;proof=tokens;confirmed=400 saves 400"},
		"a hit that prefill had computed":                           {hit, told(880, 900), "hit;tokens=400;read=0;proof=tokens;confirmed=880;reason=prefill_had_it"},
		"a hit of so few tokens that prefill computes":              {hit, told(384, 900), "hit;tokens=400;read=0;proof=tokens;confirmed=384;reason=too_few_tokens"},
		"a hit that ends before what prefill lacked":                {cutHit, told(80, 900), "hit;tokens=96;read=0;proof=tokens;confirmed=80;reason=rewritten_early;differs=messages[1]"},
		"a cut hit": {cutHit, told(96, 900), "hit;tokens=96;read=96;proof=tokens;confirmed=96;differs=messages[1] saves 96"},
		"a cut hit of a prompt that was replayed": {cutHit, told(80, 96), "hit;tokens=96;read=0;proof=tokens;confirmed=80;reason=too_few_tokens;differs=messages[1]"},
		"a ticket that went back":                 {Choice{Offer: hit.Offer, Why: record.ReasonRetried}, Told{Cached: -1}, "miss;reason=retried_without_ticket"},
	} {
		check(name, chat(none), Found{}, row.choice, row.told, row.want)
	}
	for name, row := range map[string]struct {
		proof  *Proof
		found  Found
		choice Choice
		told   Told
		want   string
	}{
		"a first turn, whose prefix others share":             {text, Found{}, missed(record.ReasonFirstTurn), told(96, 500), "prefix;tokens=96;reason=first_turn shares 96"},
		"a hit with a system prompt that all share":           {chat(all), tickets(shares(mine, 96)), hit, told(400, 900), "hit;tokens=400;read=304;proof=tokens;confirmed=400 saves 304 shares 96"},
		"a hit on an instance that had the prompt":            {chat(all), tickets(prefilled(mine, here, 310)), hit, told(400, 900), "hit;tokens=400;read=96;proof=tokens;confirmed=400 saves 96"},
		"a hit on one that was restarted":                     {chat(all), tickets(prefilled(mine, here, 310)), hit, restarted, "hit;tokens=400;read=400;proof=tokens;confirmed=400 saves 400"},
		"a hit on another instance":                           {chat(all), tickets(prefilled(mine, there, 310)), hit, told(400, 900), "hit;tokens=400;read=400;proof=tokens;confirmed=400 saves 400"},
		"handed back, and found":                              {chat(all), notes(shares(mine, 96), here), unreported, told(384, 900), "hit;tokens=288;read=288;proof=engine;confirmed=384 saves 288 shares 96 kept yes"},
		"handed back to another instance, which has a prefix": {chat(all), notes(mine, there), unreported, told(384, 900), "hit;tokens=384;read=0;proof=engine;confirmed=384;reason=prefill_had_it"},
		"handed back, of a prompt that was computed before":   {chat(all), notes(mine, here), unreported, told(880, 900), "hit;tokens=880;read=0;proof=engine;confirmed=880;reason=prefill_had_it kept yes"},
		"handed back, and a part found":                       {chat(half), notes(mine, here), unreported, told(192, 900), "hit;tokens=192;read=192;proof=engine;confirmed=192;differs=add_special_tokens saves 192 kept yes"},
		"handed back, where no ids are compared":              {unproven, notes(mine, there), unreported, told(384, 900), "hit;tokens=384;read=0;proof=engine;confirmed=384;reason=prefill_had_it;differs=add_special_tokens"},
		"handed back, and evicted":                            {chat(all), notes(mine, here), unreported, told0, "miss;reason=handed_back_evicted kept no"},
		"handed back elsewhere":                               {chat(all), notes(mine, there), unreported, told0, "miss;reason=handed_back_elsewhere"},
		"handed back to an instance that was restarted":       {chat(all), notes(mine, here), unreported, moved, "miss;reason=handed_back_elsewhere"},
		"handed back to a prefill that tells nothing":         {chat(all), notes(mine, here), unreported, told(-1, 900), "miss;reason=hand_back_unreported"},
		"handed back, beside a ticket that can't be used":     {chat(all), beside, gone, told0, "miss;reason=instance_gone"},
		"handed back of a history that was rewritten":         {proofOf(body.Chat, none, system, 9, answered, next), notes(mine, here), unreported, told0, "miss;reason=history_rewritten;differs=add_generation_prompt"},
		"handed back of a history that begins otherwise":      {proofOf(body.Chat, none, 9, question, answered, next), notes(mine, here), unreported, told0, "miss;reason=history_rewritten;differs=endpoint"},
		"handed back, and the answer was changed":             {chat(none), notes(mine, here), unreported, told0, "miss;reason=history_rewritten;differs=add_special_tokens"},
		"by content, which others may have left":              {asked, byContent(notes(mine, pins.HolderOf(asked.Prefill))), unreported, Tell(asked, &upstream.Handover{}, 900), "miss;reason=first_turn"},
		"by content, to a decode that sends no params":        {text, byContent(notes(mine, here)), unreported, silent, "miss;reason=engine_sends_no_params"},
		"by content, of a chat that finds less than it had":   {chat(all), byContent(notes(prefilled(mine, here, 320), here)), unreported, told(192, 900), "hit;tokens=192;read=0;proof=engine;confirmed=192;reason=handed_back_evicted kept yes"},
		"by content, of a chat that lacks what came before":   {chat(all), byContent(notes(prefilled(mine, here, 320), here)), unreported, told0, "miss;reason=handed_back_evicted kept no"},
	} {
		check(name, row.proof, row.found, row.choice, row.told, row.want)
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
		"with ids":    {Told{By: here, Prompt: 900, Same: true, Keeps: true, Compared: true}, "[{{q } 200} {{p } 900}]"},
		"no caching":  {Told{By: here, Prompt: 900, Same: true}, "[{{q } 300}]"},
		"no count":    {Told{By: here, Same: true, Keeps: true}, "[]"},
		"new process": {Told{By: here, Prompt: 900, Keeps: true}, "[{{p } 900}]"},
		"short":       {Told{By: here, Prompt: 100, Same: true, Keeps: true}, "[{{q } 100} {{p } 100}]"},
	} {
		row.told.Block = 1
		o := OutcomeOf(p, &Found{Branches: []convcache.KeyedBranch{b}}, &Choice{Why: record.ReasonRewritten}, row.told)
		if got := fmt.Sprint(o.Prefilled); got != row.want {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
		}
	}
}

// Before prefill has answered, nothing is known of its caches.
func TestNothing_KnowsNoCachedTokens(t *testing.T) {
	p := proofOf(body.Chat, proves{})
	if got := p.Nothing(&Found{}); got.Cached != -1 {
		t.Errorf("%d cached tokens, want -1", got.Cached)
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
		"all of the offer, which it had":     {0, 400, 400, true, record.ReasonHadIt},
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

// A follow-up is told by its request, or by what the store has of its conversation; a turn that wants no reuse is none.
func TestOutcome_TellsFollowUps(t *testing.T) {
	for _, row := range []struct{ answered, found, off, want bool }{
		{false, false, false, false}, {true, false, false, true}, {false, true, false, true}, {true, true, true, false},
	} {
		p := proofOf(body.Text, nil)
		p.Length.Answered, p.Conversation.Off = row.answered, row.off
		if o := OutcomeOf(p, &Found{continues: row.found}, &Choice{Why: record.ReasonFirstTurn}, Told{Cached: -1}); o.FollowUp() != row.want {
			t.Errorf("%+v: got %t", row, o.FollowUp())
		}
	}
}
