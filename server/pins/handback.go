package pins

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream/fleet"
)

// HandBacks hands KV back from decode to prefill: prefill reads a ticket's blocks into its own prefix cache, and decode then frees them. It
// does so in the background for tickets that no turn has used for a while, and for answers whose request names no conversation. The
// conditions are those of a ticket, because the leg writes into a cache that other requests read.
//
// A ticket stays in the store, where turns find it, until its leg is about to be sent. It is then taken by its id, as by a turn. Only this
// replica can hand it back, because only this process has the ids of its tokens.
type HandBacks struct {
	cfg      *Config
	deps     *Deps
	ledger   *Ledger
	releases *Releases
	counts   *handBackCounts
	queues   *handBackQueues
	arena    *proof.Arena // keeps the ids, nil if nothing is handed back
	put      putFunc
	learner  *continuation.Learner
	late     *lateReleases
	choices  *choiceCounts
}

// putFunc stores a ticket or a note of a conversation, see Pins.Put.
type putFunc func(ctx context.Context, key convcache.Key, ticket convcache.Ticket, model string) convcache.Outcome

func newHandBacks(cfg *Config, deps *Deps, ledger *Ledger, releases *Releases, counts *counts, put putFunc) *HandBacks {
	h := &HandBacks{
		cfg: cfg, deps: deps, ledger: ledger, releases: releases, counts: &counts.handBacks, queues: newHandBackQueues(cfg, deps, releases), put: put,
		choices: &counts.choices,
	}
	if cfg.handsBack() && deps.Connector.Traits().HandsBack {
		h.arena = proof.NewArena(cfg.HandBackMemory)
	}
	return h
}

// Arena returns the memory for the ids of tickets, nil if nothing is handed back.
func (h *HandBacks) Arena() *proof.Arena { return h.arena }

// on reports whether tickets are handed back: hand-backs are configured, and the connector supports them.
func (h *HandBacks) on() bool { return h.arena != nil }

// Answer is what a hand-back needs to know of the answer that has left a ticket.
type Answer struct {
	Prefill, Decode *fleet.Incarnation // those of the answer's turn
	IDs             *proof.IDs
	Account         string // for whom it counts
	Model           string
	Salt            string        // the cache_salt of the turn's legs without that of a quarantine, "" for none
	Conversation    string        // in the log
	Key             convcache.Key // of the conversation, zero if the request names none
	Affinity        string        // the conversation's routing key
	PromptTokens    int
}

// Stored notes a ticket that is now in the store, and what was chosen for it. It keeps the ids of a ticket that may be handed back, if they fit
// into memory. A ticket that is kept for its life may be handed back too, if it is displaced or its engine leaves.
func (h *HandBacks) Stored(answer Answer, ticket *convcache.Ticket, choice continuation.Choice) {
	h.ledger.show(ticket.ID, answer.Conversation)
	if choice.End == continuation.Release {
		due := time.Now().Add(choice.Wait)
		h.ledger.releases(ticket.ID, due)
		h.late.add(lateRelease{key: answer.Key, id: ticket.ID, model: answer.Model, due: due})
		return
	}
	k := h.retain(answer, ticket)
	if k == nil {
		return
	}
	k.key, k.homed, k.due = answer.Key, true, time.Now().Add(choice.Wait)
	if choice.End == continuation.Keep {
		k.due = ticket.Deadline
	}
	h.queues.mu.Lock()
	defer h.queues.mu.Unlock()
	h.queues.add(k)
	h.queues.remind(choice)
	h.queues.makeRoom(h.arena.Use)
}

// Outside hands back a ticket that is not stored, because the request names no conversation. It reports false if it does not take the ticket,
// which the caller must then release.
func (h *HandBacks) Outside(answer Answer, ticket *convcache.Ticket) bool {
	if size := max(1, ticket.Chain.BlockSize); ticket.Tokens/size <= answer.PromptTokens/size {
		return false // prefill has all whole blocks of the ticket already, and vLLM caches only whole blocks
	}
	k := h.retain(answer, ticket)
	return k != nil && h.take(k, ticket)
}

// displaced hands back a ticket that was removed from the store. It reports false if it does not take the ticket, which the caller must then
// release: another replica has made it, or its ids did not fit into memory.
func (h *HandBacks) displaced(ticket *convcache.Ticket) bool {
	k := h.queues.displaced(ticket.ID)
	return k != nil && h.take(k, ticket)
}

// takeOut takes a ticket that the ledger has given up out of the store, which gives each ticket to one taker, and hands it back or has it
// released for a reason.
func (h *HandBacks) takeOut(ctx context.Context, p pin, handBack bool, why record.Reason) convcache.Outcome {
	defer p.of.incarnation.Pins.EndTransfer(p.tokens)
	bounded, cancel := storetime.Limit(ctx, h.cfg.StoreTimeout)
	defer cancel()
	ticket, outcome := h.releases.take(bounded, p.key, p.id)
	if !handBack || outcome != convcache.Taken {
		h.queues.left(p.id)
	}
	switch {
	case outcome != convcache.Taken:
		h.ledger.lost(&p, outcome)
	case !handBack || !h.displaced(&ticket):
		h.releases.Unuse(ticket, p.model)
		h.ledger.givenUp(p.key, why)
	}
	return outcome
}

// retain takes over the ids of an answer, and returns nil if it does not keep them.
func (h *HandBacks) retain(answer Answer, ticket *convcache.Ticket) *retainedTicket {
	if !h.on() || !h.queues.takes(answer, ticket) {
		return nil
	}
	ids := answer.IDs.Retained(ticket.Tokens)
	if ids == nil {
		return nil
	}
	return &retainedTicket{
		id: ticket.ID, ids: ids, ends: ticket.Deadline, queue: h.queues.queue(pairKey{answer.Prefill, answer.Decode}),
		from: handBackOrigin{account: answer.Account, model: answer.Model, salt: answer.Salt, affinity: answer.Affinity, conversation: answer.Conversation},
	}
}

// take queues a ticket that is not in the store. It reports false, and frees the ids, if too many wait.
func (h *HandBacks) take(k *retainedTicket, ticket *convcache.Ticket) bool {
	removed := *ticket
	k.ticket, k.due = &removed, time.Time{}
	h.queues.mu.Lock()
	defer h.queues.mu.Unlock()
	if k.queue.out.Len() >= maxOut || !h.on() {
		k.ids.Free()
		return false
	}
	h.releases.become(k.ticket, HandBackQueued)
	k.queue.decode.Pins.BeginTransfer(inBlocks(k.queue.decode, ticket.Tokens))
	h.queues.add(k)
	h.queues.hurry()
	return true
}

// round starts the hand-backs that can start now.
func (h *HandBacks) round(ctx context.Context) {
	h.Round(ctx, time.Now(), func(decode string, leg func() (again bool)) {
		h.deps.Background("hand-back", decode, func() { leg() })
	})
}

// Round has run start each hand-back that is due at a time: it calls leg once, which returns when its leg has ended, and reports whether the
// ticket waits for another one. decode names the instance.
func (h *HandBacks) Round(ctx context.Context, at time.Time, run func(decode string, leg func() (again bool))) (begun int) {
	all := h.queues.begin(at)
	for _, k := range all {
		run(k.queue.decode.Engine().Name, func() (again bool) {
			defer h.queues.done(k)
			h.run(ctx, k)
			return k.leg.again
		})
	}
	return len(all)
}

// Await waits for the hand-backs of a conversation that run now, mostly a tenth of a second. A turn that has waited for some time before waits
// for the rest of patienceForLeg at most; Await returns for how long it has waited now. Afterwards prefill need not compute what was handed
// back. And if prefill cached it under other ids than it was sent, it is quarantined before the turn could read that.
func (h *HandBacks) Await(ctx context.Context, keys []convcache.Key, waited time.Duration) time.Duration {
	return h.queues.await(ctx, keys, waited)
}

// UnderWay reports whether a ticket of the conversation is being handed back now.
func (h *HandBacks) UnderWay(key convcache.Key) bool { return h.queues.isUnderWay(key) }

// Waiting returns how many tickets wait to be handed back: stored tickets that are due, and tickets that are not in the store.
func (h *HandBacks) Waiting() (tickets int) { return h.queues.waiting(time.Now()) }

// Memory returns how many bytes the ids of tickets use, 0 if nothing is handed back.
func (h *HandBacks) Memory() int64 {
	used, _ := h.arena.Use()
	return used
}
