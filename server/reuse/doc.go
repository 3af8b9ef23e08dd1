// Package reuse finds, proves and claims the ticket that a turn may use, and makes the ticket that the turn leaves. It takes values and
// knows no turn:
//
//   - proving.go: the part that a turn takes in reuse, from its request to the end of its answer; how its proof begins
//   - lookup.go: looks up what the store has of a conversation
//   - find.go: proves how much of the conversation a request may use on a pair of engines, and takes the ticket
//   - drop.go: gives up tickets whose blocks are gone or in doubt
//   - miss.go: why a turn uses no ticket
//   - claim.go: a ticket that an attempt has taken, and what becomes of it
//   - credit.go, handedback.go: how much prefill did not compute because of reuse
//   - maker.go: makes the ticket of an answer, and stores it
//   - noparams.go: what an operator is told where answers bring no params
//
// Every doubt is a miss. A ticket is taken in one atomic step before any byte of it is sent, only from the incarnation of decode that was
// seen alive as its holder, and only if it still offers what the look has promised. Every claim is settled: the ticket was sent, goes back
// into the store because nothing of it was sent, or is given up.
package reuse
