package reuse

import (
	"context"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/answer"
	"carryover/server/continuation"
	"carryover/server/pins"
	"carryover/server/record"
)

// Keep stores the ticket that an answer leaves, and returns "yes". If there is none, it returns the reason and releases the answer's blocks. It also
// returns the choice for the ticket. It runs before the client can see the end of the answer: a turn that follows at once finds the ticket, on any
// replica. If an answer does not get that far, Keep runs on its exit.
func (t *Tickets) Keep(ctx context.Context, o *Origin, f *Found, got answer.Result) (stored string, keep record.Keep) {
	complete, c, tickets := got.Completeness != answer.Incomplete, &o.Conversation, t.deps.Pins
	if complete {
		o.State.ExchangedKV()
	}
	kind := continuation.Kind{
		API: o.API, FollowUp: o.Length.Answered, Tools: o.tools, ToolCalls: got.Finish == "tool_calls", Unread: o.tools && got.Finish == "",
		Explicit: !c.ByContent(),
	}
	if c.Known && !c.Final && complete { // the learner has to recognise the answer's continuation
		tickets.Continuations.Answered(o.Account, c.Tenant, kind, c.Home(), o.prompt, time.Now())
	}
	ticket, why := t.ticketOf(o, &got)
	if why != "" {
		tickets.UnuseParams(got.Params, o.Decode, o.Model, got.FreshAsOf)
		if c.Final && !f.byContent && complete {
			t.giveUp(ctx, f.Branches, o.Model)
		}
		return why, keep
	}
	to := pins.Answer{
		Prefill: o.Prefill, Decode: o.Decode, IDs: o.IDs, Account: o.Account, Model: o.Model, Salt: o.Salt,
		Conversation: c.Name, Key: f.home(c), PromptTokens: got.Usage.Prompt,
	}
	if !c.Known { // the ticket waits for its hand-back where no turn looks for it
		copy(to.Key[:], ticket.ID[:])
	}
	choice, ok := tickets.Answered(to, c.Tenant, kind, &ticket)
	if !ok {
		t.cfg.Logger.Error("two answers name the same blocks; the ticket of one is dropped", "decode", ticket.Decode.Instance)
		return "duplicate", keep
	}
	o.IDs.Learnt()
	keep = record.Keep{What: choice.Now().String(), For: choice.Wait}
	if choice.Now() == continuation.Release {
		tickets.Unuse(&ticket, nil)
		if !c.Known {
			return record.ReasonNoConversation, keep
		}
		return "released", keep
	}
	began := time.Now()
	stored = t.store(ctx, o, f, &ticket, to.Key)
	if keep.Took = time.Since(began); stored == "yes" && !c.Known {
		stored = "hand_back"
	}
	return stored, keep
}

// store puts a ticket, and gives up the tickets that it makes superfluous. Beside the put it removes the aliases by which this turn has found a
// ticket. It adds one if the next turn has to find the conversation by content. It returns "yes", or why the ticket is not stored.
func (t *Tickets) store(ctx context.Context, o *Origin, f *Found, ticket *convcache.Ticket, home convcache.Key) string {
	tickets := t.deps.Pins
	var aliased sync.WaitGroup
	aliased.Go(func() {
		if f.taken != nil {
			t.giveUp(ctx, f.leadingTo(f.taken.Key), o.Model)
		}
		if f.needsAlias(&o.Conversation) {
			tickets.Put(ctx, o.Conversation.Content[0], convcache.Alias(o.Account, home, time.Now()), o.Model)
		}
	})
	outcome := tickets.Put(ctx, home, *ticket, o.Model)
	aliased.Wait()
	if outcome != convcache.Stored {
		return outcome.String()
	}
	t.giveUp(ctx, f.outdatedBy(ticket, home), o.Model)
	return "yes"
}

// sentNothing records that a finished answer to a hand-over brought no params, and warns if an incarnation's answers never do. Every stream of stock
// vLLM before 0.33 is such an answer (vLLM #40186). Answers of other APIs say nothing about the incarnation: a stream of Messages has no params without
// the plug-in, and a response has none behind a stop string.
func (t *Tickets) sentNothing(o *Origin) {
	if !o.API.Rendered() && o.Decode.Silence.SentNothing() {
		t.cfg.Logger.Warn("decode sends no kv_transfer_params at the end of its answers, so nothing of them can be reused; carryover doctor says why",
			"api", o.API.Path(), "stream", o.Stream, "decode", o.Decode.Engine().Name, "turn", o.turn)
	}
}
