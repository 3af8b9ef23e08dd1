package reuse

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/answer"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// Keep stores the ticket that an answer leaves, and returns "yes". If there is none, it returns the reason and has the answer's blocks
// released. It is called before the client can see the end of the answer, so that a turn that follows at once, on any replica, finds the
// ticket; or on the exit of an answer that did not get that far.
func (t *Tickets) Keep(ctx context.Context, o *Origin, f *Found, got answer.Result, turn *record.Builder) string {
	complete, c, tickets := got.Completeness != answer.Incomplete, &o.Conversation, t.deps.Pins
	if complete {
		o.State.ExchangedKV()
	}
	kind := o.kind
	if c.Known && !c.Final && complete { // the answer's continuation is to be known as one
		kind.ToolCalls, kind.Unread = got.Finish == "tool_calls", kind.Tools && got.Finish == ""
		tickets.Continuations.Answered(o.Account, c.Tenant, kind, c.Home(), o.prompt, time.Now())
	}
	ticket, why := t.ticketOf(o, &got)
	if why != "" {
		tickets.UnuseParams(got.Params, o.Decode, o.Model, got.FreshAsOf)
		if c.Final && !f.byContent && complete {
			t.giveUp(ctx, f.Branches, o.Model)
		}
		return why
	}
	to := pins.Answer{
		Prefill: o.Prefill, Decode: o.Decode, IDs: o.IDs, Account: o.Account, Model: o.Model, Salt: o.Salt,
		Conversation: c.Name, Affinity: c.Affinity, PromptTokens: got.Usage.Prompt,
	}
	if c.Known {
		to.Key = f.home(c)
	}
	if !tickets.Answered(to, &ticket) {
		t.cfg.Logger.Error("two answers name the same blocks; the ticket of one is dropped", "turn", o.turn, "decode", ticket.Decode.Instance)
		return "duplicate"
	}
	if o.IDs.Learning() {
		learning, learnt := t.bounded(ctx)
		o.IDs.Learnt(learning)
		learnt()
	}
	if !c.Known {
		ticket.Params = bytes.Clone(ticket.Params) // they are a part of the answer, which would be kept with them
		if tickets.HandBack(ticket, got.Usage.Prompt) {
			return "hand_back"
		}
		return record.ReasonNoConversation
	}
	choice := tickets.Choose(to, c.Tenant, kind, &ticket)
	turn.Chosen(record.Keep{What: choice.Now().String(), For: choice.Wait})
	if choice.AtOnce() {
		ticket.Params = bytes.Clone(ticket.Params) // as above
		tickets.Continuations.Released(c.Home(), o.prompt)
		tickets.Unuse(ticket)
		return "released"
	}
	return t.store(ctx, o, f, &ticket, to.Key, turn)
}

// store puts a ticket, and gives up the tickets that it makes superfluous. It returns "yes", or why the ticket is not stored.
func (t *Tickets) store(ctx context.Context, o *Origin, f *Found, ticket *convcache.Ticket, home convcache.Key, turn *record.Builder) string {
	tickets := t.deps.Pins
	bounded, cancel := t.bounded(ctx)
	defer cancel()
	aliased := t.alias(bounded, o, f, home)
	outcome := t.put(bounded, o.Admitted, home, *ticket, turn)
	aliased()
	switch {
	case outcome != convcache.Stored:
		return outcome.String()
	case ticket.Epoch != t.deps.Epoch.Now(): // since the ticket was made
		tickets.GiveUp(bounded, home, ticket.ID, o.Model)
		return record.ReasonQuarantined
	}
	t.giveUp(bounded, f.outdatedBy(ticket, home), o.Model)
	if !f.byContent && !f.foreign { // else they may be of other conversations that began alike
		tickets.WatchBranches(o.Model, f.Branches, ticket)
	}
	return "yes"
}

// alias lets the next turn find the conversation by content if it has another id, and forgets the aliases by which this turn has found a
// ticket. It returns a function that waits for both.
func (t *Tickets) alias(ctx context.Context, o *Origin, f *Found, home convcache.Key) (wait func()) {
	var group sync.WaitGroup
	beside := group.Go
	if t.cfg.StoreTimeout == 0 { // the store is in this process, and does not wait
		beside = func(work func()) { work() }
	}
	if outdated := f.leadingTo(f.taken.Key); len(outdated) > 0 {
		beside(func() { t.giveUp(ctx, outdated, o.Model) })
	}
	if key, due := f.needsAlias(&o.Conversation, home); due {
		beside(func() { t.deps.Pins.Put(ctx, key, convcache.Alias(o.Account, home, time.Now()), o.Model) })
	}
	return group.Wait
}

// sentNothing records that a finished answer to a hand-over brought no params. Every stream of stock vLLM before 0.33 is such an answer
// (vLLM #40186). Answers of other APIs say nothing about the incarnation: a stream of Messages has no params without the plug-in, of which
// it warns once for each incarnation, and a response has none behind a stop string.
func (t *Tickets) sentNothing(o *Origin) {
	switch {
	case o.API == body.Messages && o.Stream:
		incarnation := o.Decode.ID()
		if last, _ := t.plugInless.Swap(o.Decode.Engine().Name, incarnation); last == incarnation {
			return
		}
	case o.API.Rendered(), !o.Decode.Silence.SentNothing():
		return
	}
	engine, api, stream, turn := o.Decode.Engine(), o.API, o.Stream, o.turn
	t.deps.Background("version", turn, func() { // what helps depends on decode's version
		why, fix := upstream.WhyNoParams(t.version(engine), api, stream, false)
		t.cfg.Logger.Warn("decode sends no kv_transfer_params at the end of such answers, so nothing of them can be reused",
			"api", api.Path(), "stream", stream, "why", why, "fix", fix, "decode", engine.Name, "turn", turn)
	})
}

// Limits of asking an engine for its version.
const (
	versionLimit   = 5 * time.Second
	maxVersionBody = 512
)

// version returns the version that an engine reports, "" if it reports none in time.
func (t *Tickets) version(engine *fleet.Engine) string {
	ctx, cancel := context.WithTimeout(context.Background(), versionLimit)
	defer cancel()
	status, body, err := t.deps.Legs.Fetch(ctx, engine.Instance(), "/version", "", maxVersionBody)
	var told struct{ Version string }
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &told) != nil {
		return ""
	}
	if _, known := upstream.ReleaseOf(told.Version); !known {
		return ""
	}
	return told.Version
}
