// Package answer reads decode's answers: those of the completion endpoints (completion.go, chunk.go, members.go, usagefilter.go), of
// Messages (messages.go) and of Responses (responses.go).
//
// A [Reader] sees each event of a stream, or a whole answer, before the client does. It decides what the client gets to see, and learns
// what a ticket and the turn's record need (result.go). Events of plain text are read in one pass, without an allocation; whatever else
// an event may be is read in a general way, which would learn the same of plain text. What the answer changes for the turn is told
// through a small interface ([Turn]): a handful of calls for each answer, and none for each event.
//
// The client gets what an engine without additions would have sent. What was asked of decode beyond the client's request (ids, usage) is
// hidden, and kv_transfer_params never reach a client unless the operator exposes them. Nothing of an answer that belongs to another
// request is forwarded where that shows in time.
//
// How much of an answer was seen decides whether it may leave a ticket ([Completeness]).
package answer
