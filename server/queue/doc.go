// Package queue lets turns wait for a slot, in fair shares among tenants.
//
// A slot is what a turn needs before it goes on: one of the turns that the server runs at once, or one of the requests that an instance
// takes. The queue does not have the slots. A turn brings a function that tries to take one and reports whether it did; the queue decides
// when to call it. Turns that wait for the same kind of slot, their class, form a line: if one of them can't get a slot, no other can.
//
// It promises:
//
//   - No slot stays free while a turn of its class waits: see [Queue.Freed].
//   - The tenant with the fewest slots of the class is served next; of several such tenants, the one that has waited for longest. A tenant
//     with one turn does not wait behind a hundred turns of another.
//   - The number of waiting turns is bounded, and no tenant can keep another out: if the queue is full, the newest turn of the tenant with
//     the most turns gives way.
//   - A turn leaves when its context ends, when its time is over, or when the queue is closed.
//   - A tenant that holds and waits for nothing takes no memory, because clients choose their tenants' names.
//
// The callers are packages admission and pick. queue.go is what it calls, line.go the order in which turns are served.
package queue
