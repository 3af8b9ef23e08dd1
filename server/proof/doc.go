// Package proof shows how much of a ticket a request may use.
//
// A conversation id proves nothing, and vLLM compares nothing, so the request itself has to show which tokens of a ticket it
// may use: that the ids of its prompt begin with the ids whose KV decode holds (proof.go, ids.go, parity.go).
//
// A [Turn] says whether a request may take part, how much of a branch it may use, and what a later request has to show to use
// this turn's answer. It also makes both legs compute the same ids, and checks that they did; [IDs] is the part of the proof
// that the legs see. The ids, and the JSON list that the legs carry, lie in
// memory that the fleet lends; it goes back when decode has answered ([Turn].Drop). Ids that are still needed after the
// answer, because its KV may be handed back, are packed, and an [Arena] bounds their memory ([IDs].Retain; retained.go).
//
// Every doubt is a miss. An engine proves nothing until its incarnation, its treatment of ids and its rendering are known,
// and a question to an engine that fails proves nothing either. Nothing is accepted that was not compared.
//
// # What is compared
//
// Engines have to be vLLM 0.28 or newer. A ticket has a chain of keyed 64-bit hashes: one for each full
// block of ids, each computed over the hash before it, and one over exactly the first remote_num_tokens ids. The ids are
// those that prefill computed and those that decode sampled. The ids of the next request come from the chosen prefill engine
// (/tokenize, or a render endpoint). The ticket is offered as far as the ids agree: whole, or cut to the longest run of equal
// blocks. Both legs then carry these very ids, so neither engine can render anything else. Everything is checked:
//
//   - capability: each incarnation shows once, by a probe with ids that it has to refuse, that its endpoint uses the ids
//     that it is sent. The probe carries Carryover's own key and the first model that the instance lists.
//   - parity: /tokenize is believed for an incarnation of prefill, a model and a shape of requests only after it has agreed
//     with what prefill itself rendered: in a lesson at the start of the incarnation (fleet/facts/lessons.go), or in a turn. One
//     difference rules the shape out.
//   - id echo: prefill's answer has to repeat the ids that it was sent. If it does not, the incarnation is quarantined on
//     all replicas: its prefix cache is in doubt for every client.
//   - incarnation: a ticket names decode's incarnation. It must have been read within five seconds, and since the engine
//     last refused or ended a connection, because a restarted process may have the engine id of the one before. If an
//     incarnation is unknown, no ticket is made and none is used.
//   - count: decode's usage has to count as many tokens as there are ids. remote_num_tokens may be one less, and would not
//     show a lost id. An answer whose usage was requested but did not come leaves neither a ticket nor a hand-back. The
//     number of blocks has to fit the number of tokens.
//   - content: ids are only placeholders for images, audio, video and files, so turns with these leave no ticket.
//   - groups: blocks of several groups leave no ticket. A ticket is cut only if prefill's blocks have the same size as
//     decode's.
//   - second look: a ticket that was taken has to offer what the look-up promised, or it is given up.
//
// Without the plug-in in scripts/vllm decode is asked for its ids (return_token_ids), and the client still gets what a stock
// engine sends. This proof can't reuse: the first turn of a new shape of request on an instance, because parity is still
// being learnt; requests with content other than text, or with members that it doesn't know; prompts that the engine fails to
// tokenize; and part of a ticket, if the engines don't report their block size. Equal keyed hashes are taken as proof of
// equal ids.
package proof
