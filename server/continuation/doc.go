// Package continuation learns which answers are continued and after how long, and decides from that what becomes of an answer's ticket.
//
//   - kind.go: the kinds of answers that are told apart
//   - learner.go: what is told of answers and of turns, and the bounds of memory
//   - history.go: answers of one kind that wait for their next turn, and the counts of those that ended
//   - curve.go: from these counts the chance that an answer is continued after a time
//   - rule.go: the costs of keeping a ticket, handing it back and releasing it, and the choice of the least
//
// # Signals
//
// The learner remembers the conversation key of each answer and compares it with the keys of later turns. It needs no ticket for that, so
// that it also sees the continuation of an answer whose ticket was released at once. A turn continues an answer if one of its keys is the
// answer's key and
//
//   - the conversation has an explicit id, or
//   - the key is that of an earlier part of the request's history, or
//   - the key is that of the whole request and the answer called tools: results of tools are no part of a key by content.
//
// Text completions share a key where they share an instruction. A turn continues that one whose whole prompt begins the turn's.
//
// A request with examples (assistant messages that no model of this deployment has written) has keys that no answer had, and counts as no
// continuation. Neither does an equal request that is sent again.
//
// Answers to requests with tools whose finish_reason the engine has not told are of a kind of their own (Kind.Unread): they teach
// nothing about answers that leave tickets, and their next turns still count for the coverage below.
//
// # Several replicas
//
// A replica sees the turns that it serves. Where clients are bound to none, it sees only some continuations of its own answers. It corrects
// its chances by its coverage: among the turns for which the shared store has a ticket or a note, the part whose previous answer this
// replica gave. With n equal replicas that is 1/n, and each chance is multiplied by n. The distribution of times needs no correction.
// Where turns find nothing in the store, because everything is released, the last coverage stays.
//
// # Forgetting
//
// Counts belong to one of four quarters of an hour; the oldest is dropped when the fifth begins.
package continuation
