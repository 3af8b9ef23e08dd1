// Package memory measures the resident memory that Carryover needs per open stream that hardly says a thing: with small bodies, with large
// ones, and with large ones under a memory limit (GOMEMLIMIT) that leaves them little more than the small ones took. What is resident without
// a limit is mostly garbage of the requests; what streams hold has to fit under it. It fails if that does not hold.
package memory
