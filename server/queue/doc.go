// Package queue lets turns wait their turn for a place, in fair shares among tenants.
//
// A place is whatever a turn has to have before it goes on: one of the turns that the server runs at once, or room on an
// instance. The queue knows no places. A turn brings a function that takes one, and says so; the queue says when that is worth
// trying. Turns that wait for the same kind of place, their class, form a line; what one of a line can't get, no other of it can.
//
// It promises:
//
//   - No place stays free while a turn of its class waits: see [Queue.Freed].
//   - The tenant with the fewest places of the class is served next, of several such the one that has waited for longest. A tenant
//     with one turn does not wait behind the hundred of another.
//   - The waiting room is bounded, and no tenant can keep another out of it: where it is full, the newest turn of the tenant with
//     the most gives way.
//   - A turn leaves when its context ends, when its time is over, or when the queue is closed.
//   - Nothing is kept of a tenant that holds and waits for nothing: tenants are what clients call themselves.
//
// The caller is package server. queue.go is what it calls, line.go the order in which turns are served.
package queue
