// Package proof shows how much of a ticket a request may use.
//
// A conversation id proves nothing, and vLLM compares nothing. So the request itself has to show which tokens of a ticket it may use: the ids of its
// prompt must begin with the ids whose KV decode holds.
//
//   - proof.go: a [Turn] says whether a request takes part, and what a later request has to show to use this turn's answer
//   - ids.go: [IDs] are the ids of one attempt: they tell how much of a branch is proven, and check that both legs compute them
//   - parity.go: learns whether /tokenize agrees with prefill
//   - retained.go: packs ids that a hand-back needs after the answer ([IDs].Retain); an [Arena] bounds their memory
//
// The ids and the JSON list that the legs carry lie in memory that the fleet lends. It goes back when decode has answered ([Turn].Drop).
//
// Every doubt is a miss. An engine proves nothing until its incarnation, its use of ids and its rendering are known. A question that fails proves
// nothing either.
//
// # What is compared
//
// Engines have to be vLLM 0.28 or newer. A ticket has a chain of keyed 64-bit hashes: one for each full block of ids, computed over the hash before
// it, and one over exactly the first remote_num_tokens ids. Its ids are those that prefill computed and those that decode sampled. The ids of the
// next request come from the chosen prefill engine (/tokenize, or a render endpoint). The ticket is offered as far as the ids agree: whole, or cut to
// the longest run of equal blocks. Both legs then carry these ids, so neither engine can render anything else. Everything is checked:
//
//   - capability: each incarnation shows once that its endpoint uses the ids that it is sent, by a probe with ids that it has to refuse. The probe
//     carries Carryover's own key and the first model that the instance lists.
//   - parity: /tokenize is believed for an incarnation of prefill, a model and a shape of requests only after it has agreed with what prefill rendered:
//     in a lesson at the start of the incarnation (fleet/facts/lessons.go), or in a turn. One difference rules the shape out.
//   - id echo: prefill's answer has to repeat the ids that it was sent. If it does not, all replicas quarantine the incarnation: its prefix cache is in
//     doubt for every client.
//   - incarnation: a ticket names decode's incarnation. It must have been read within five seconds, and after the engine last refused or ended a
//     connection: a restarted process may have the engine id of the one before. Without a known incarnation no ticket is made or used.
//   - count: decode's usage has to count as many tokens as there are ids. remote_num_tokens may be one less, and would not show a lost id. If a
//     requested usage did not come, the answer leaves neither a ticket nor a hand-back. The number of blocks has to fit the number of tokens.
//   - content: ids are only placeholders for images, audio, video and files, so turns with these leave no ticket.
//   - groups: blocks of several groups leave no ticket. A ticket is cut only if prefill's blocks have the same size as decode's.
//   - second look: a ticket that was taken has to offer what the look-up showed, or it is given up.
//
// Without the plug-in in scripts/vllm decode is asked for its ids (return_token_ids); the client still gets what a stock engine sends. This proof
// can't reuse: the first turn of a new shape of request on an instance, while parity is learnt; requests with content other than text, or with
// unknown members; prompts that the engine fails to tokenize; and part of a ticket, if the engines don't report their block size. Equal keyed hashes
// count as equal ids.
package proof
