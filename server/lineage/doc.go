// Package lineage knows out of which prefix caches the KV may have come that engines have in theirs, and which of it is in doubt.
//
// An incarnation of prefill that computes other ids than it was sent files wrong KV in its prefix cache, and is put under quarantine
// when its answer shows that. What read its cache in between has wrong KV, too: decode by hand-overs, other incarnations of prefill by
// tickets and hand-backs of decode's. So each cache has a lineage, which grows with everything that enters it, and KV that comes out of
// a cache descends from all that has entered. Under a quarantine a cache that descends from the incarnation is exposed: its engine is
// asked under a cache_salt of the quarantine from then on, until it is restarted, and thereby gets a new, empty cache, its next space.
// Neither KV that has come out of the space before is used any more, nor what descends from that.
//
// An incarnation is in doubt since the last leg that was sent, was answered with the ids that it was sent, and had been answered when the
// leg was sent that was not. An answer of another leg in between does not help: that leg may have read what was filed wrongly.
//
// # What is given up
//
// Tickets and notes that descend from KV in doubt are taken out of the store, by a sweep and by each look-up, and their
// blocks are released. A lineage is checked last, under one lock, where a leg is about to bring its KV into a cache:
// with a ticket or a hand-back to prefill, with a hand-over to decode. A turn whose hand-over is in doubt is run anew;
// one that decode has already leaves no ticket. A ticket has the lineages of both engines of its turn, and both engines;
// a note has those of its ticket, and prefill. At most 32 ancestors are named. Of the others only the last moment is
// kept: such KV counts as a descendant of any incarnation that is quarantined then or later.
//
// An incarnation without one good id echo is in doubt from its beginning. Moments are the earlier or the later of two
// clocks, whichever is safer, and two seconds are added between replicas.
//
// # Exposed caches
//
// An exposed incarnation computes correctly, and its cache is in doubt. All its legs get a random cache_salt in front of
// the client's, until it is restarted. The two legs of a turn have each the salt of their own engine: cache_salt enters
// the hashes of local prefix caches only, and blocks are moved by position. What an engine is sent while its incarnation
// is unknown counts for the one before and for the one that is known next.
//
// # Replicas
//
// Replicas tell each other within a second what is quarantined and which spaces are exposed. Each draws its conclusions
// from what it has seen itself, and tells these too, until nothing more follows. Incarnations are named by a keyed hash
// of start time, rank, port and path, because hosts are spelled in several ways. A ticket of a replica that has not
// heard of a quarantine names its ancestors, by which those that have heard refuse it.
//
// What it can't do: undo answers from before the id echo, keep other users of an engine from its cache, or know what a
// process saw before its own restart, and what a replica saw that Redis doesn't reach.
package lineage
