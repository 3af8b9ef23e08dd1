// Package quarantine keeps turns away from incarnations of prefill that compute other ids than they are sent, and from all KV that may
// have come through their caches.
//
// An incarnation of prefill that computes other ids than it was sent stores wrong KV in its prefix cache. Its answer shows this, because
// it repeats the ids. By then other engines may have read that cache: decode by hand-overs, other incarnations of prefill by tickets and
// hand-backs of decode's KV. Which of them have, and since when, nobody has to know. The incarnation is quarantined until it is
// restarted, and the epoch of the fleet rises (epoch.go):
//
//   - A ticket, or a note of a hand-back, has the epoch of the legs of its turn. That of another epoch is a miss, and the blocks of a
//     ticket are released.
//   - The legs of a turn have the cache_salt of their epoch, the same on both, unless both engines were started since the epoch began. So
//     no engine finds in its prefix cache what it had there before.
//   - A turn whose epoch has ended before decode got its hand-over is run again. If decode has the hand-over, the turn leaves no ticket.
//
// A rise costs every conversation its ticket and every engine its prefix cache, once. No stock engine has shown such a fault.
//
// # Replicas
//
// The epoch is the moment of the rise, so that all replicas agree on which engines were started since. It is one number in Redis, which
// each look-up and each take reads: a replica that uses a ticket knows of every rise before. Each replica compares it with its own, and
// the quarantined incarnations, once a second (watch.go), and at once after a rise of its own. While Redis does not answer, a replica
// knows of its own findings only. Without Redis the epoch is in this process. In the same round replicas share which instances operators drain
// (drains.go).
//
// This package can't undo answers from before the id echo, keep other users of an engine from its cache, or know what a process without
// Redis saw before its own restart.
package quarantine
