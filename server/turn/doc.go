// Package turn runs turns, each from its request to the ticket that it leaves. Read turn.go first; a turn is
//
//		Request → Lookup → Pair → Claim → Handover → Answer → Ticket
//
//	 1. wait for a slot, parse the body once, find the conversation          handler.go, packages admission and request
//	 2. look up what the conversation holds, pick engines and the path       turn.go, packages reuse and pick
//	 3. prove how much of a ticket may be used, and take it                  packages reuse and proof
//	 4. run the prefill leg as the connector has planned it                  attempt.go, prefill.go
//	 5. run the decode leg up to its headers                                 decode.go
//	 6. commit: send status and headers to the client                        commitwriter.go
//	 7. relay events and observe them                                       respond.go, package answer
//	 8. store the new ticket before the client sees the end of the stream    packages reuse and pins
//	 9. account for the turn                                                 handler.go, package record
//
// The package promises four things. It excludes a wrong hand-over wherever it can: a ticket is used at most once, and only by a request
// that provably continues the turn which left it. A truncated answer never looks complete. A fault of the store costs a miss, and at most
// the store's time limit. Nothing that a client sends reaches an upstream path, header or KV address, except a trace context that was
// parsed and written anew; and a request can name its prefill instance only where the operator has listed the instances that it may name
// (package request).
//
// Three orderings hold on every path. The put is complete before the client can see the end of the stream (respond.go, package reuse).
// After a take, every exit settles the ticket once the prefill leg is over: it was sent, it is put back because nothing was sent, or it is
// given up (reuse.Tickets, Settle). Work that outlives the client runs on a detached context with its own time limit (package background;
// rescue.go; package storetime).
//
// Four places decide alone: retry.go decides what may be tried again; blame.go decides which engine or pair a failure counts against, and
// everywhere.go which 500 are the request's fault and count against none; package apierror decides how an error looks to a client. Around the turns,
// package pins has decode free the blocks of tickets that no turn will use, and package quarantine shares with other replicas which
// incarnations of prefill computed other ids than they were sent, and which KV may descend from them.
//
// # Which way a turn goes
//
// The path is decided when the decode engine is picked, because what that engine holds of the conversation isn't computed again. A request
// that no hand-over serves, and one with fewer uncached tokens than routing.disagg_threshold, goes to decode alone without any
// kv_transfer_params: decode then pins nothing, and the conversation's ticket waits for a turn that is worth a hand-over. The count is an
// estimate. Token ids are counted; text is measured as far as templates render it, and divided by the bytes of a token, which are learnt
// for each model from the prompts that engines have counted. When prefill fails over nothing of ours, routing.prefill_failure decides:
// another instance and then decode alone, decode alone at once, or the error. Decode prefills 16 such turns at once; the others get 503. A
// 500 is an instance's last word on a request: only another instance is asked then.
//
// A decode engine that refused a connection, and has answered nothing since, has to accept a connection before prefill works for it. With
// no decode engine that does, the turn gets 503 at once, and no block of prefill is occupied for nothing.
//
// # What may be tried again
//
//   - Nothing of a leg was sent: another instance.
//   - Something may have been sent: once for each leg, with a new request id and no previous KV, within the retry
//     budget.
//   - Bytes have reached the client: nothing.
//   - Another engine has answered 500 in equal words to the same body, now or within the last minute: nothing.
//
// A fresh leg after a 5xx or silence to a ticket or a release, or after a failed id echo, costs no retry budget, because the fault was
// ours; a third id echo that fails ends the turn. vLLM sends decode's first chunk (the role) even when it failed to load the KV, and the
// error as the next event. So the first chunk waits for the second event, whatever becomes of that, but for LegConfig.FirstEvent at most; until
// then such a turn is still retried, without the prefill instance whose KV could not be loaded, as long as that has not been restarted, and on
// another decode instance if there is one. Comments and blank lines reach the client at once, because they tell it, and the proxies before it,
// that the connection lives. So they commit the turn, even before decode's first event (package sse). vLLM itself writes none.
//
// # The APIs
//
// Chat, text completions, Messages and Responses are rows of a table in package body. A turn doesn't know which it has; four places do.
// Requests: what is refused because it would need a store of responses, what of a body is plain text, and what the body of each leg is.
// Ids: only a render endpoint tells the ids of a prompt of Messages or Responses, because a translated prompt has other ids (measured on
// vLLM 0.32); its prefill leg is always a text completion of exactly these ids. Answers: one reader for each API. Errors: the shape that
// each API's clients expect.
//
// The events that open an answer of Messages or Responses come before its KV is loaded, so they wait for the next event. A stream that ends
// without its API's last event has broken off, however clean the connection's end was; and so has one of chat or text that ends before each
// choice has its finish_reason, unless its [DONE] or an error of the engine has come. The ticket is stored before message_delta or
// response.completed leaves. What Carryover asked of decode beyond the client's request is null again in every event, and no event is
// dropped, because events are numbered. A ticket doesn't know the API that left it: ids prove.
//
// # Memory
//
// A turn holds its body, its ids and their share of the bytes in flight until the client sees the first byte; the end of a stream needs
// hashes and numbers only. Its answer counts among these bytes while it is held: one that comes whole, or a long event. What is too long, or
// finds no room, passes as it comes: nobody reads it, so that it leaves no ticket, and what clients must not see of it is null
// (rawjson.Blanks). Legs are made of pieces of the body, so the body stays unchanged until then. The answer to the question for a
// prompt's ids goes into memory that the fleet lends; it serves the next prompt once both legs are written, and is left to the garbage
// collector where a leg may still be on its way. A relay's buffer goes to the next stream when its own has ended. All that is kept for
// others is bounded.
package turn
