// Package fleet knows the engines: which instances exist, which of them answer, which incarnation each runs, and what a prefill and a decode
// incarnation have shown together.
//
// An [Engine] owns what is known of an instance, an [Incarnation] what is known of one run of its process (mostly in package facts), and a
// [pairs.State] what is known of two incarnations. [health.Health] says whether picks prefer an engine, and [prefixindex.Index] which engines hold
// which beginnings of prompts. A [Fleet] owns and picks the engines. Its [Holders] may hold blocks of tickets; its [Catalogue] lists models.
// Package server and the steps of its turns call this package. It asks engines through [upstream.Client]; an [upstream.Source] tells it the
// instances. It promises:
//
//   - A removed engine gets nothing new and is forgotten after its last attempt; a decode engine only when its blocks have expired, so that they
//     can be released (set.go, holders.go). If its instance comes back earlier, it is the same engine. Its quarantine outlasts it (quarantine.go).
//   - Changed settings (weight, TTL, KV host) keep what is known while place and incarnation stay the same.
//   - Avoiding is a preference, never a refusal (package health). Without another engine, one that is ejected, drained or has an open circuit is
//     picked, and after these one that is down. At least one engine of a role is never ejected. A full engine is not picked: turns wait for it.
//   - What the client, a ticket or a release has caused is no failure of an engine.
//   - Prefill hands nothing over to a decode engine that has failed to load its KV three times in a row, nor to any while different ones fail
//     (pairing.go).
//   - An unknown incarnation equals nothing, not even itself: no ticket goes to or from it, and it has no findings (incarnation.go, pairing.go).
//   - An attempt's Incarnation keeps its identity when its engine restarts or is removed. What it learns then ends with it, except quarantines.
//   - Nothing grows with restarts: an engine has its last incarnation and one for unknown ones, a prefill incarnation has one pair per decode
//     engine, and memory of clients' requests is bounded (reading.go, pairing.go).
//   - A reading of /metrics counts for five seconds on both clocks, and for tickets only while a connection from before it stands. A refused
//     connection discards a reading under way (reading.go).
//   - No turn goes to an engine that is known not to serve its model. Clients make the fleet read lists of models every five seconds at most
//     (models.go).
//   - Nothing waits for an engine while it holds a lock. Lock order: Fleet, picking, Engine, its Health, Incarnation, pair.
//
// # Picks
//
// A policy sees of each candidate: our attempts, other requests at its last reading, the used share of its KV cache, prefill's expected time for
// the queue and this turn, how much of the conversation it holds, and how much of the prompt's beginning it has. A beginning counts if it was sent
// to the engine, or, with KV events and known tokens, if the engine holds it. A note counts like a computed beginning (pick.go, picking.go).
package fleet
