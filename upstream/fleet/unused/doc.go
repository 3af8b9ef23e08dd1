// Package unused counts the blocks that a decode incarnation pins for us although no turn will read them: tickets that
// wait for a leg which has decode free their blocks (ticket.go), tickets that are on a leg, and blocks that only decode's
// TTL frees (expiring.go).
//
// It promises that
//
//   - an unused ticket is handed out once, before its deadline, by the monotonic and by the wall clock (soonest.go);
//   - what a decode incarnation pins is counted until it is read, released or expired, in memory that does not grow with
//     the number of pins.
package unused
