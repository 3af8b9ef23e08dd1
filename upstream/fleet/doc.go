// Package fleet knows the engines: which instances there are, which of them answer, which incarnation each runs, what that
// incarnation can do, and what a prefill and a decode incarnation have shown together.
//
// What is known of an instance belongs to its [Engine], what is known of one start of it to an [Incarnation] (most of it in
// package facts), and what is known of two incarnations together to a [pairs.State]. Whether picks prefer an engine is for its [health.Health] to
// say. Which engines hold which beginnings of prompts is in a [prefixindex.Index]. A [Fleet] owns the engines and picks those
// of a turn; its [Holders] are those that may hold blocks of tickets, and its [Catalogue] lists their models.
// They promise that
//
//   - an engine that discovery removes is not picked any more, and is forgotten when its last attempt ends (set.go,
//     holders.go); only its quarantine outlasts it (quarantine.go);
//   - an engine that is down, drained, slower than its role or whose legs fail is picked only if no other is left, and at
//     least one engine of a role is never ejected (package health);
//   - prefill hands nothing over to a decode engine that has failed to load its KV three times in a row, nor to any while
//     different ones fail (pairing.go);
//   - an incarnation that is not known equals nothing, not even itself: no ticket goes to or from it, and it has no
//     findings (incarnation.go, pairing.go);
//   - nothing grows with restarts: an engine has the incarnation that was read last and one that stands for unknown ones, a
//     prefill incarnation has one pair for each decode engine, and all memory of clients' requests is bounded
//     (reading.go, pairing.go);
//   - a reading of /metrics counts for five seconds on both clocks, for tickets only while a connection from before it
//     stands, and is discarded when a connection is refused while it is under way (reading.go);
//   - a pick takes one lock, however many engines there are, and picks are made one after another (pick.go, picking.go);
//   - no turn goes to an engine that is known not to serve its model, and clients can make the fleet read the lists of
//     models every five seconds at most (models.go);
//   - nothing waits for an engine while it holds a lock.
//
// Lock order: Fleet, picking, Engine, its Health, Incarnation, then a pair. An Incarnation that an
// attempt holds does not change identity when its engine is restarted or removed; what is learnt of it then goes with it,
// except quarantines.
//
// Package server and the steps of its turns call this package. The fleet asks engines through [upstream.Client], and an [upstream.Source] tells it
// which instances there are.
//
// # What ends with what
//
// An engine's knowledge ends with its owner: that of an incarnation with the next one, that of a pair with either of its
// two, and everything with an engine that discovery removes, except its quarantine. It outlasts changed settings of an
// instance (weight, TTL, KV host) while place and incarnation are the same. A decode engine that was removed is known
// for as long as its blocks may be pinned, so that they are released. An instance that a source removes gets nothing new
// and serves what it has; if it comes back as it was meanwhile, it is the engine that it was.
//
// # Picks
//
// A policy sees of each candidate our attempts, what the engine had of others at its last reading, the share of its KV
// cache in use, how long prefill is expected to take for what is before this turn and for it, how much of the
// conversation the engine holds, and how much of the prompt's beginning it has computed. The speed of prefill is learnt
// from legs: the time of a leg over the tokens of all legs that were answered meanwhile. Which beginning an engine has
// computed is what was sent to it; of an engine that publishes KV events it is what it holds, for prompts whose tokens
// were known before. A note counts like a beginning that this incarnation has computed. A pick among a thousand
// instances takes less than 20 µs and one allocation, because it takes no lock.
//
// # What is avoided
//
// Avoiding is a preference and never a refusal: without another engine, an engine that is ejected, drained or whose
// circuit is open is picked, and after these one that is down. An engine that has as many turns as it may is left, and
// turns wait for it.
//
//   - down: for 2 s after it refused a connection, and while its health probes fail. An engine that says that it is
//     paused is avoided for 2 s, too.
//   - circuit: it opens after five legs in a row that failed by the engine's own fault, for 1, 2, 4 … 30 s; then one
//     turn at a time tries. A good /health does not close it: it exists for engines whose health is fine and whose
//     completions fail.
//   - ejected: an engine that takes three times as long for its work as the median of its role, in two rounds of
//     probing, and never so many that more than half are out. A prefill leg that waits behind others of ours is not slow.
//
// What the client, a ticket of ours or a release has caused is no failure of an engine.
package fleet
