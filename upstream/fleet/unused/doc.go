// Package unused counts the blocks that a decode incarnation pins for us although no turn will read them: tickets that
// wait for a leg which has decode free their blocks (ticket.go), tickets that are on a leg, and blocks that only decode's
// TTL frees (expiring.go). It also knows when such blocks are free by themselves, because the engine has cleared its
// cache (clearing.go) or has slept (registered.go).
//
// It promises that
//
//   - an unused ticket is handed out once, before its deadline, by the monotonic and by the wall clock (soonest.go);
//   - what a decode incarnation pins is counted until it is read, released or expired, in memory that does not grow with
//     the number of pins;
//   - tickets from before a clearing of the cache are not used.
//
// # Cleared caches
//
// A decode engine that publishes AllBlocksCleared loses its tickets from before the event, on all replicas, and those of
// the two seconds after it in which clocks may disagree. They are misses (instance_cleared), nothing of them counts as
// pinned, and none is released. An event that comes after the look-up of a ticket is too late for it; vLLM clears a
// cache only when nothing in it is pinned, so that such a ticket had ended before.
package unused
