package reuse

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Why an attempt uses no ticket whatever the store has. Of several reasons the first one counts.
func TestExcludes(t *testing.T) {
	prefill, lost := &fleet.Incarnation{}, &proof.IDs{}
	lost.Lost()
	for name, row := range map[string]struct {
		change  func(p *Proof)
		without string
		want    string
	}{
		"nothing":              {func(*Proof) {}, "", ""},
		"the client":           {func(p *Proof) { p.Conversation.Off, p.Conversation.Known = true, false }, "", record.ReasonBypass},
		"no conversation":      {func(p *Proof) { p.Conversation.Known, p.Ineligible = false, body.WhyN }, "", record.ReasonNoConversation},
		"the request":          {func(p *Proof) { p.Ineligible, p.Prefill = body.WhyN, nil }, "", "ineligible_" + body.WhyN},
		"decode alone":         {func(p *Proof) { p.Prefill = nil }, record.ReasonRetried, record.ReasonBypass},
		"an attempt before":    {func(p *Proof) { p.Quarantined = true }, record.ReasonRetried, record.ReasonRetried},
		"a quarantine":         {func(p *Proof) { p.Quarantined, p.IDs = true, lost }, "", record.ReasonQuarantined},
		"quarantined and gone": {func(p *Proof) { p.Quarantined, p.Prefill = true, nil }, "", record.ReasonQuarantined},
		"no proof":             {func(p *Proof) { p.IDs = lost }, "", "ineligible_unproven;why=ids"},
	} {
		p := proofOf(body.Chat, nil)
		p.Prefill = prefill
		if row.change(p); p.excludes(row.without) != row.want {
			t.Errorf("%s: got %q, want %q", name, p.excludes(row.without), row.want)
		}
	}
}

// The reason of a miss for each outcome of a store.
func TestMissed(t *testing.T) {
	chat := proofOf(body.Chat, nil)
	for _, row := range []struct {
		outcome convcache.Outcome
		proof   *Proof
		silent  bool
		want    string
	}{
		{convcache.Empty, chat, false, record.ReasonNothingStored},
		{convcache.Empty, chat, true, record.ReasonNoParams},
		{convcache.Empty, proofOf(body.Text, nil), false, record.ReasonFirstTurn},
		{convcache.Expired, chat, true, record.ReasonExpired},
		{convcache.Consumed, chat, false, record.ReasonConsumed},
		{convcache.Fenced, chat, false, record.ReasonStoreFailedOver},
		{convcache.Unavailable, chat, false, record.ReasonStoreUnavailable},
	} {
		got := missed(row.outcome)
		if row.outcome == convcache.Empty {
			got = row.proof.unstored(row.silent)
		}
		if got != row.want {
			t.Errorf("%v, silent %t: got %q, want %q", row.outcome, row.silent, got, row.want)
		}
	}
}

// Which branches a request may use, in which order, and why it leaves others. A choice is written as id, tokens and reason.
func TestChoose(t *testing.T) {
	cfg := &Config{MinTokens: 64, MinShare: 0.5}
	offer := func(tokens int, whole bool) convcache.Offer { return convcache.Offer{Tokens: tokens, Whole: whole} }
	id := func(n byte) convcache.TicketID { return convcache.TicketID{n} }
	under := func(key byte, b convcache.KeyedBranch) convcache.KeyedBranch {
		b.Key = convcache.Key{key}
		return b
	}
	prefilled := func(tokens int) convcache.KeyedBranch {
		b := branchOf(1, 400)
		b.Chain.BlockSize, b.Prefilled = 16, []convcache.Prefilled{{Tokens: tokens}}
		return b
	}
	alias := branchOf(9, 0)
	alias.Branch = convcache.Alias("", convcache.Key{1}, time.Now()).Branch
	parts := []uint64{system, question, answered, next}
	cut := proves{id(1): offer(300, false)}
	byID := func(all ...convcache.KeyedBranch) Found { return Found{Branches: all} }
	byContent := func(all ...convcache.KeyedBranch) Found { return Found{Branches: all, byContent: true} }
	for name, row := range map[string]struct {
		api    body.API
		proves proves
		found  Found
		want   string
		why    string // history_rewritten if empty
	}{
		"nothing":                {want: ""},
		"nothing of this epoch":  {found: Found{dropped: true}, why: record.ReasonQuarantined},
		"nothing that is proven": {found: byID(branchOf(1, 400))},
		"a whole ticket": {proves: proves{id(1): offer(400, true)}, found: byID(branchOf(1, 400)),
			want: "1 400"},
		"too few tokens": {proves: proves{id(1): offer(63, true)}, found: byID(branchOf(1, 63)),
			want: "1 63 below_threshold"},
		"too small a share": {proves: proves{id(1): offer(199, false)}, found: byID(branchOf(1, 400)),
			want: "1 199 below_threshold"},
		"most tokens first": {proves: proves{id(1): offer(200, true), id(2): offer(300, false)}, found: byID(branchOf(1, 200), branchOf(2, 400)),
			want: "2 300, 1 200"},
		"by content whole ones come first": {proves: proves{id(1): offer(200, true), id(2): offer(300, false)},
			found: byContent(branchOf(1, 200), branchOf(2, 400)),
			want:  "1 200, 2 300"},
		"by content a cut one of another prompt is left to its conversation": {proves: cut,
			found: byContent(branchOf(1, 400, system, 9), branchOf(2, 400)),
			want:  "1 300 nothing_stored"},
		"by content a cut one is used if it is the only one": {proves: cut,
			found: byContent(branchOf(1, 400, system, 9), under(2, branchOf(2, 400))),
			want:  "1 300"},
		"by content a cut one is used if it goes on": {proves: cut,
			found: byContent(branchOf(1, 400, system, question), branchOf(2, 400)),
			want:  "1 300"},
		"by content a cut one that an alias has led to is left to its id": {proves: cut,
			found: Found{byContent: true, Branches: []convcache.KeyedBranch{branchOf(1, 400)}, aliases: []convcache.KeyedBranch{alias}},
			want:  "1 300 nothing_stored"},
		"by content a text of another prompt is left": {api: body.Text, proves: cut,
			found: byContent(prefilled(316)),
			want:  "1 300 history_rewritten"},
		"by content a text that goes on is used": {api: body.Text, proves: cut,
			found: byContent(prefilled(315)),
			want:  "1 300"},
	} {
		p := proofOf(row.api, row.proves, parts...)
		var got []string
		for _, c := range cfg.choose(p, &row.found) {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%d %d %s", c.branch.ID[0], c.Offer.Tokens, c.Why)))
		}
		if strings.Join(got, ", ") != row.want {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
		if len(row.found.Branches) > 0 {
			continue
		}
		if _, _, why := new(Tickets).claim(t.Context(), p, row.found); why != cmp.Or(row.why, record.ReasonRewritten) {
			t.Errorf("%s: missed with %q, want %q", name, why, row.why)
		}
	}
}

// Of several tickets the one of most tokens says why nothing is reused, not that another is not worth its reading.
func TestTake_TheBestChoiceSaysWhy(t *testing.T) {
	tickets, gone, small := &Tickets{deps: Deps{Fleet: fleet.New(fleet.Config{})}}, branchOf(1, 400), branchOf(2, 63)
	choices := []Choice{{branch: &gone}, {branch: &small, Why: record.ReasonBelowThreshold}}
	if _, why := tickets.take(t.Context(), proofOf(body.Chat, nil), choices); why != record.ReasonInstanceGone {
		t.Errorf("got %s", why)
	}
}
