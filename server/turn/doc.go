// Package turn runs turns, each from its request to the ticket that it leaves. Read turn.go first. A turn makes these values, one after another:
//
//		Request → Found → Pair → Proof → Claim → Handover → Answer → Ticket
//
//	 1. wait for a slot, parse the body once, find the conversation          handler.go, packages admission and request
//	 2. look up what the conversation holds, pick engines and the path       turn.go, packages reuse and pick
//	 3. prove how much of a ticket may be used, and take it                  packages reuse and proof
//	 4. run the prefill leg as the connector has planned it                  attempt.go, prefill.go
//	 5. run the decode leg up to its headers                                 decode.go
//	 6. commit: send status and headers to the client                        commitwriter.go
//	 7. relay events and observe them                                        respond.go, package answer
//	 8. store the new ticket before the client sees the end of the stream    packages reuse and pins
//	 9. account for the turn                                                 handler.go, package record
//
// It keeps these promises on every path:
//
//   - A ticket is used at most once, and only by a request that provably continues the turn which left it.
//   - A truncated answer never looks complete.
//   - A fault of the store costs a miss, and at most the store's time limit.
//   - Nothing that a client sends reaches an upstream path, header or KV address. The exceptions are a trace context, which is parsed and written
//     anew, and the name of a prefill instance that the operator has listed.
//   - A put is complete before the client can see the end of the stream (respond.go, package reuse).
//   - After a take, every exit settles the ticket once the prefill leg is over: it was sent, it is put back because nothing was sent, or it is given
//     up (reuse.Tickets, Settle).
//   - Work that outlives the client runs on a detached context with its own time limit (package background; rescue.go; package storetime).
//
// Four places decide alone:
//
//   - retry.go: what may be tried again
//   - blame.go: which engine or pair a failure counts against
//   - everywhere.go: which 500 are the request's fault, and count against none
//   - package apierror: how an error looks to a client
package turn
