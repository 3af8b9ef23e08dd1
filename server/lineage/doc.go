// Package lineage knows from which prefix caches the KV in an engine's cache may have come, and which KV is in doubt.
//
// An incarnation of prefill that computes other ids than it was sent stores wrong KV in its prefix cache. It is quarantined
// when an answer shows this. Engines that read its cache before that have wrong KV, too: decode by hand-overs, other
// incarnations of prefill by tickets and hand-backs of decode's KV. So each cache has a lineage, which grows with everything
// that enters the cache, and KV that leaves a cache descends from everything that has entered it. Under a quarantine every
// cache that descends from the incarnation is exposed: from then on its engine is asked under a cache_salt of the quarantine,
// until it is restarted. The salt gives the engine a new, empty cache, its next space. KV that has left the earlier space is
// no longer used, nor is anything that descends from it.
//
// An incarnation that failed an id echo is in doubt from the moment at which a certain leg was sent: the last one that
// repeated its ids and was answered before the failing leg was sent. A good answer of another leg in between does not help:
// that leg may have read what was stored wrongly.
//
// # What is given up
//
// Tickets and notes that descend from KV in doubt are taken out of the store, by a sweep and by each look-up, and their
// blocks are released. A lineage is checked for the last time, under one lock, when a leg is about to bring its KV into a
// cache: with a ticket or a hand-back to prefill, with a hand-over to decode. A turn whose hand-over is in doubt is run
// again; if decode already has the hand-over, the turn leaves no ticket. A ticket has the lineages of both engines of its
// turn, and both engines; a note has the lineage of its ticket, and prefill. A lineage names at most 32 ancestors. For all
// others only the latest moment is kept: such KV counts as a descendant of any incarnation that is quarantined at that moment
// or later.
//
// An incarnation without one good id echo is in doubt from its beginning. A moment is the earlier or the later reading of two
// clocks, whichever is safer, and two seconds are added between replicas.
//
// # Exposed caches
//
// An exposed incarnation computes correctly, but its cache is in doubt. All its legs get a random cache_salt in front of the
// client's, until it is restarted. Each of the two legs of a turn has the salt of its own engine: cache_salt enters only the
// hashes of local prefix caches, and blocks are moved by position. What an engine is sent while its incarnation is unknown
// counts for the previous incarnation and for the next one that becomes known.
//
// # Replicas
//
// Replicas tell each other within a second which incarnations are quarantined and which spaces are exposed. Each replica
// draws its conclusions from what it has seen itself, and publishes these too, until nothing more follows. Incarnations are
// named by a keyed hash of start time, rank, port and path, because hosts are spelled in several ways. A replica that has not
// heard of a quarantine still names the ancestors of its tickets, and replicas that have heard of it refuse the tickets by
// these names.
//
// This package can't undo answers from before the id echo, keep other users of an engine from its cache, or know what a
// process saw before its own restart or what a replica saw that Redis doesn't reach.
package lineage
