// Package proof shows how much of a ticket a request may use.
//
// A conversation id proves nothing, and vLLM compares nothing: what a ticket may be used for has to be
// shown by the request itself. There are two proofs, and a turn has one of them, by its model:
//
//	tokens   the ids of the new prompt begin with the ids whose KV decode holds   tokens.go, ids.go, parity.go
//	history  the messages begin with what the ticket covers                       history.go, reply.go
//
// Both answer the three questions of [Turn]: whether a request may take part, how much of a branch it may
// use, and what its own answer is worth to the next request. The token proof also has both legs compute
// the same ids, and checks that they did ([IDs]); that is the part of a proof that the legs see. The ids, and the list of them that the
// legs carry, are in memory that the fleet lends; it goes back when decode has answered ([Turn].Drop). Ids that are wanted when the answer has
// ended, because its KV may be handed back, are packed into an arena beside Go's heap ([IDs].Retain; retained.go, pack.go, arena.go).
//
// Every doubt is a miss. An engine of which something is not known (its start, what it does with ids that it is
// sent, what it renders) proves nothing until it is known, and a question to an engine that fails proves nothing
// either. No implementation here accepts what it has not compared.
//
// # Tokens
//
// The proof by tokens is the default, for vLLM 0.28 and newer. A ticket has a chain of keyed 64-bit hashes: one for each
// full block of ids, each over the one before it, and one over exactly the first remote_num_tokens ids. The ids are
// those that prefill computed and those that decode sampled. The ids of the next request come from the chosen prefill
// engine (/tokenize, or a render endpoint), and the ticket is offered as far as they agree: whole, or cut to the longest
// run of equal blocks. Both legs then carry these very ids, so that neither engine can render anything else. Nothing is
// taken on trust:
//
//   - capability: each incarnation shows once, by a probe with ids that it has to refuse, that its endpoint uses the ids
//     it is sent. The probe has Carryover's own key and the first model that the instance lists.
//   - parity: /tokenize is believed for an incarnation of prefill, a model and a shape of requests after it has agreed
//     with what prefill rendered by itself. One difference rules the shape out.
//   - id echo: prefill's answer has to repeat the ids that it was sent. If it does not, the incarnation is quarantined
//     on all replicas: its prefix cache is in doubt for every client.
//   - incarnation: a ticket names decode's incarnation, which must have been read within five seconds and since the
//     engine last refused or ended a connection, because a restarted process may have the engine id of the one before.
//     Where an incarnation is unknown, no ticket is made and none is used.
//   - count: decode's usage has to count as many tokens as there are ids. remote_num_tokens may be one less, and would
//     not show a lost id. An answer whose usage was asked for and did not come leaves neither a ticket nor a hand-back.
//     The number of blocks has to be that of the tokens.
//   - content: ids are placeholders for images, audio, video and files, so turns with these leave no ticket.
//   - groups: a ticket of several block groups is used only with proof.reuse_hybrid, and whole. A ticket is cut only
//     where prefill's blocks have the same size as decode's.
//   - second look: a ticket that was taken has to be worth what the look-up promised, or it is given up.
//
// Without the plug-in in scripts/vllm decode is asked for its ids (return_token_ids), and the client still gets what a
// stock engine sends. What this proof can't do: reuse the first turn of a new shape of request on an instance, because
// parity is being learnt; requests with content that is no text, or with members that it doesn't know; prompts that the
// engine fails to tokenize; and more than whole tickets of engines that don't tell their block size. Equal keyed hashes
// stand for equal ids.
//
// # History
//
// The proof by history is opt-in, for engines without token support. A ticket is used when the request's messages begin
// with exactly what it covers: a chain of digests over the scope (everything besides the messages that shapes the
// rendered prompt), the messages that were sent, and the reply; all or nothing. Messages are equal as JSON values. In
// tools and other members that templates print with json.dumps the order of keys matters, because it changes the prompt.
// A string of 512 bytes or more enters by its length and a keyed 128-bit tag (GMAC), for a seventh of the time of
// SHA-256.
//
// It refuses where equal text is known to become other tokens: reasoning was seen; arguments of a tool call are not as
// json.dumps prints them; a reply has U+FFFD, or white space at its ends; generation ended at a stop string, a stop
// token, or inside of what may be a character; a text completion goes on without a white-space border; the chat template
// is not append-only, which is found out once for each incarnation, model and template arguments. What it can't do: see
// that an engine sampled tokens which differ from the tokenisation of their text. On a real model with random weights
// that happened on every turn; on trained models it is rare.
package proof
