// Package routing holds the policies by which a fleet picks an instance. A policy
// is a function of the candidates and of the conversation's key: it performs no
// I/O and reads no clock. Given the same candidates, every replica of Carryover
// finds the same favourite for a turn (favourite.go, home.go). Among equal
// candidates a policy takes one after the other, or draws at random ([PowerOfTwo]).
// All policies measure a candidate's load in the same way (load.go).
//
// The default, [Auto], takes the decode engine that holds most of the conversation, the prefill engine that has computed
// most of the prompt's beginning or is the conversation's home, and the least loaded engine otherwise. A favourite gives
// way when its load is above 1.25 times the mean. A holder gives way only above twice the mean, because a turn that leaves
// its holder loses its ticket. Stopped candidates, through which no ticket can be used now, come last.
package routing
