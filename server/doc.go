// Package server is the side of Carryover that clients see: it speaks the OpenAI API and Anthropic's Messages, and runs each turn from
// its request to the ticket that it leaves. Read turn.go first; a turn has nine steps:
//
//  1. wait for a slot, parse the body once, find the conversation          handlers.go, slot.go, intake.go, prefiller.go, inflight.go, conversation.go
//  2. look up what the conversation holds, pick engines and the path       find.go (look), storetime.go, pick.go, path.go, estimate.go
//  3. prove how much of a ticket may be used, and take it                  find.go, claim.go, package proof, reason.go
//  4. run the prefill leg as the connector has planned it                  legs.go, prefill.go
//  5. run the decode leg up to its headers                                 decode.go
//  6. commit: send status and headers to the client                        commitwriter.go
//  7. relay events and observe them, or make events of a whole answer      respond.go, answer.go, members.go, usagefilter.go, dialect.go, messages_answer.go, responses_answer.go, buffered.go, eventbuffer.go
//  8. store the new ticket before the client sees the end of the stream    ticketmaker.go, ticketwriter.go, blocks.go
//  9. account for the turn                                                 record.go, steps.go, account.go, counts.go
//
// The package promises four things. It excludes a wrong hand-over wherever it can: a ticket is used at most once, and only by a request
// that provably continues the turn which left it. A truncated answer never looks complete. A fault of the store costs a miss, and at most
// the store's time limit. Nothing that a client sends reaches an upstream path, header or KV address, except a trace context that was
// parsed and written anew (trace.go); and a request can name its prefill instance only where the operator has listed the instances that
// it may name (prefiller.go).
//
// Three orderings hold on every path. The put is complete before the client can see the end of the stream (respond.go, ticketmaker.go).
// After a take, every exit settles the ticket once the prefill leg is over: it was sent, it is put back because nothing was sent, or it
// is given up (claim.go, settle). Work that outlives the client runs on a detached context with its own time limit (background.go;
// decode.go, drainHandover; storetime.go).
//
// Three files decide alone: retry.go decides what may be tried again, with prefillfailure.go for the operator's choice; blame.go decides
// which engine a failure counts against; errors.go decides how an error looks to a client. Around the turns, release.go has decode free
// the blocks of tickets that no turn will use, branches.go gives up the branches that a conversation has left, budget.go gives up the
// oldest tickets of an engine where tickets pin more than their share of its KV cache (pinned.go counts that), and quarantine.go shares
// with other replicas which incarnations of prefill computed other ids than they were sent, so that no leg goes there. exposure.go gives
// up the KV that may descend from such an incarnation.
//
// Outlines of earlier requests, which hold no text, show where a history was rewritten (find.go, replytraits.go, package outline).
// Operators can ask what would become of a request: the turn's own code predicts it, with a finder and a picker that change nothing
// (explain.go, explain_tickets.go, explain_words.go, explain_handler.go).
//
// The package also serves the list of models (models.go) and whether the replica is ready (ready.go), on the routes of routes.go.
// server.go starts and drains all of it.
//
// The caller is the composition root, which makes the dependencies (deps.go) and the limits (config.go).
package server
