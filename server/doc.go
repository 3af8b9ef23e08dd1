// Package server is the side of Carryover that clients see: it speaks the OpenAI API and Anthropic's Messages, and runs each turn from
// its request to the ticket that it leaves. Read turn.go first; a turn has nine steps:
//
//  1. wait for a slot, parse the body once, find the conversation          handlers.go, slot.go, intake.go, prefiller.go, inflight.go, conversation.go
//  2. look up what the conversation holds, pick engines and the path       find.go (look), pick.go, path.go, estimate.go
//  3. prove how much of a ticket may be used, and take it                  find.go, claim.go, miss.go, package proof
//  4. run the prefill leg as the connector has planned it                  legs.go, prefill.go
//  5. run the decode leg up to its headers                                 decode.go
//  6. commit: send status and headers to the client                        commitwriter.go
//  7. relay events and observe them, or make events of a whole answer      respond.go, answer.go, members.go, usagefilter.go, dialect.go, messages_answer.go, responses_answer.go, buffered.go, eventbuffer.go
//  8. store the new ticket before the client sees the end of the stream    ticketmaker.go, ticketwriter.go, blocks.go
//  9. account for the turn                                                 account.go, counts.go, package record
//
// The package promises four things. It excludes a wrong hand-over wherever it can: a ticket is used at most once, and only by a request
// that provably continues the turn which left it. A truncated answer never looks complete. A fault of the store costs a miss, and at most
// the store's time limit. Nothing that a client sends reaches an upstream path, header or KV address, except a trace context that was
// parsed and written anew (package record); and a request can name its prefill instance only where the operator has listed the instances that
// it may name (prefiller.go).
//
// Three orderings hold on every path. The put is complete before the client can see the end of the stream (respond.go, ticketmaker.go).
// After a take, every exit settles the ticket once the prefill leg is over: it was sent, it is put back because nothing was sent, or it
// is given up (claim.go, settle). Work that outlives the client runs on a detached context with its own time limit (background.go;
// decode.go, drainHandover; package storetime).
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
//
// # Which way a turn goes
//
// The path is decided when the decode engine is picked, because what that engine holds of the conversation isn't
// computed again. A request that no hand-over serves, and one with fewer uncached tokens than routing.disagg_threshold,
// goes to decode alone without any kv_transfer_params: decode then pins nothing, and the conversation's ticket waits for
// a turn that is worth a hand-over. The count is an estimate. Token ids are counted; text is measured as far as
// templates render it, and divided by the bytes of a token, which are learnt for each model from the prompts that
// engines have counted. When prefill fails over nothing of ours, routing.prefill_failure decides: another instance and
// then decode alone, decode alone at once, or the error. Decode prefills 16 such turns at once; the others get 503. A
// 500 is an instance's last word on a request: only another instance is asked then.
//
// A decode engine that refused a connection, and has answered nothing since, has to accept a connection before prefill
// works for it. With no decode engine that does, the turn gets 503 at once, and no block of prefill is occupied for
// nothing.
//
// # What may be tried again
//
//   - Nothing of a leg was sent: another instance.
//   - Something may have been sent: once for each leg, with a new request id and no previous KV, within the retry
//     budget.
//   - Bytes have reached the client: nothing.
//
// A fresh leg after a 5xx or silence to a ticket or a release, or after a failed id echo, costs no retry budget, because
// the fault was ours; a third id echo that fails ends the turn. vLLM sends decode's first chunk (the role) even when it
// failed to load the KV, and the error as the next event. So the first chunk waits for the second event, and such a turn
// is still retried. Comments and blank lines commit nothing either: they wait for the first event that goes out, and
// behind it they reach the client at once (package sse).
//
// # The APIs
//
// Chat, text completions, Messages and Responses are rows of a table in package upstream. A turn doesn't know which it
// has; four places do. Requests: what is refused because it would need a store of responses, what of a body is plain
// text, and what the body of each leg is. Ids: only a render endpoint tells the ids of a prompt of Messages or
// Responses, because a translated prompt has other ids (measured on vLLM 0.32); its prefill leg is always a text
// completion of exactly these ids. Answers: one reader for each API. Errors: the shape that each API's clients expect.
//
// The events that open an answer of Messages or Responses come before its KV is loaded, so they wait for the next event.
// A stream that ends without its API's last event has broken off, however clean the connection's end was. The ticket is
// stored before message_delta or response.completed leaves. What Carryover asked of decode beyond the client's request
// is null again in every event, and no event is dropped, because events are numbered. A ticket doesn't know the API that
// left it: ids prove.
//
// # Release
//
// With bidirectional_kv_xfer decode pins the blocks of every finished request until its TTL, and keeps a core busy
// meanwhile. A ticket that no turn will use goes to a bounded list of its decode incarnation: it was ineligible, had no
// conversation, was displaced or given up, or belongs to a branch that the conversation left. It rides on a later
// prefill leg that has no ticket, with remote_num_tokens 0: prefill reads nothing, and tells decode to free the blocks.
// After five seconds without such a leg, or above release.backlog, legs of our own do it, one at a time for each decode
// engine. They are dropped at their first event: a leg that ended by its length would keep a block of prefill for its
// lease, and a core busy for 25 to 37 s (measured on vLLM 0.32).
//
// A ticket is released once, out of the store, before its deadline, at the same incarnation of decode, and by a prefill
// engine that has exchanged KV with it. If a leg with a ticket had no answer, nobody knows whether decode has freed the
// blocks. They are released five seconds later, when prefill has heard that the leg was dropped, by a leg to the same
// incarnation of prefill, which handles the abort first; or by any, once that process is over. Until then a release
// could free blocks that prefill still reads. A release of blocks that are free changes nothing (measured on vLLM 0.32).
// Blocks of an answer whose end Carryover didn't see are left to decode's TTL.
//
// As a second line of defence, no two tickets of this process name the same blocks, whether they are stored, on their
// way or waiting for their release. One of two is dropped, with an error in the log.
//
// # Hand-back
//
// A ticket pins decode's blocks while its user thinks, and is worth nothing after decode's TTL, nor to a client that
// names no conversation. So a ticket that no turn has used for hand_back.after is handed back: one leg of our own has
// prefill read the blocks into its own prefix cache, decode frees them, and a note takes the ticket's place in the
// store. The next turn goes to that prefill engine, which compares tokens by itself. A note is a hint for the pick and
// for what the turn says of itself, and nothing else depends on it.
//
//   - Ids. A ticket's chain has hashes, and the leg needs ids. They stay in the replica that stored the ticket, packed
//     in memory of a fixed size (package proof), and never reach Redis. A ticket whose ids had no room stays a ticket.
//   - At most once. Turns find the ticket until its leg is next; then it is taken by its id, as by any taker. A turn
//     that comes to this replica while the leg runs waits for it, for 2 s at most.
//   - The leg is a text completion of the ids, a stream of up to 64 tokens whose connection is dropped at its first
//     event. Measured on vLLM 0.32: decode is free 0.02 to 0.15 s later, prefill's own blocks 0.05 to 0.5 s later. A leg
//     of one token would end by its length and keep prefill's blocks for their lease of 30 s. The first event has the id
//     echo. A wrong number of ids was seen to poison prefill's cache, so the connector counts them against the params.
//   - The receiver is the incarnation of prefill that computed the prompt. If that is over, it is the instance that the
//     conversation's next turn would go to; without a conversation the blocks are released.
//   - An answer without a conversation id, or one that the store has no place for, is handed back in place of its
//     release if its ids are known and it fills a block. Later prompts with the same beginning go to that instance. A
//     ticket that a longer one of the same history displaces is released: prefill has just computed all of it.
//   - Manners. One leg at a time for each pair. None to an engine where requests wait for room, that has eight requests
//     or nine tenths of its cache in use, or that picks avoid. A 5xx or silence is a strike against the pair. A queue
//     whose engine doesn't answer keeps its tickets and tries again; after ten seconds they go elsewhere.
//   - It is off for connectors that can't do it, with the history proof, which has no ids, for a pair that doesn't
//     answer tickets, and for an incarnation of prefill whose prefix caching is off or that kept nothing for eight turns
//     in a row.
//
// An id echo comes after the fact: an engine that computes other ids than it was sent has filed their KV by then, for
// legs of turns as for these. Package lineage says what follows.
//
// # Pinned tokens
//
// Each incarnation of decode has a ledger: what tickets in the store pin, and what waits for its release or for decode's
// TTL. Above release.pinned_share of the KV cache the oldest tickets are taken by their ids and handed back or released;
// so are half of those of an engine that runs nothing and lets requests wait for room. A decode engine that leaves,
// because an operator drains it or a source removed it, gets its pins back at once: vLLM's /pause, /sleep and shutdown
// wait for the last of them. Its tickets are handed back if that takes no more than 3 s, and released otherwise. A sleep
// without KV events shows in the params of vLLM 0.33: a ticket whose remote_registration_generation is below the highest
// seen of its engine id is a miss (instance_cleared), and pins nothing from then on. An id that is configured outlives a
// restart, and the numbers begin at one again: prefill, which shakes hands anew for a higher number only, would read by
// the registration of the process that has ended, so that these tickets are misses, too.
//
// # What operators ask
//
// What would become of a request is answered by the code of the turn, so that it can't differ from what turns do: the
// request is taken in, a dry run of the finder and the picker goes up to the legs, and the proof says what it can
// without asking an engine. Where only an engine can tell, the explanation says so. Where a history was rewritten is
// told by outlines (package outline). They prove nothing.
//
// # Memory
//
// A turn holds its body, its ids and their share of the bytes in flight until the client sees the first byte; the end of
// a stream needs hashes and numbers only. Legs are made of pieces of the body, so the body stays unchanged until then.
// Memory for a body is reserved as it arrives, in doubling steps, so that announcing a length costs nothing, and it
// takes four clients at least to use it up. The answer to the question for a prompt's ids goes into memory that the
// fleet lends; it serves the next prompt once both legs are written, and is left to the garbage collector where a leg
// may still be on its way. A relay's buffer goes to the next stream when its own has ended. All that is kept for others
// is bounded. A turn's stack while its relay waits stays below 3.2 KiB, so that the runtime leaves it 8 KiB.
package server
