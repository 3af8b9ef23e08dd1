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
package lineage
