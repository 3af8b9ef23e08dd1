// Package routing holds the policies by which a fleet picks an instance. A policy
// is a function of the candidates and of the conversation's key: it performs no
// I/O and reads no clock. Which instance has a claim to a turn (favourite.go, home.go),
// every replica of Carryover decides alike about the same candidates. Among equals
// a policy takes one after the other, or draws ([PowerOfTwo]). How busy a
// candidate is has one definition (load.go).
//
// The default, [Auto], takes the decode engine that holds most of the conversation, the prefill engine that has computed
// most of the prompt's beginning or is the conversation's home, and the least loaded engine otherwise. A favourite whose
// load is above 1.25 times the mean gives way, a holder only above twice the mean, because the turn loses its ticket
// with it. Instances with which nothing can be reused now come last.
package routing
