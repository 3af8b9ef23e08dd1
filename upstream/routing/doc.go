// Package routing holds the policies by which a fleet picks an instance. A policy
// is a function of the candidates and of the conversation's key; it performs no
// I/O, reads no clock, and every replica of Carryover decides alike about the same
// candidates.
package routing
