// Package routing holds the policies by which a fleet picks an instance. A policy
// is a function of the candidates and of the conversation's key: it performs no
// I/O and reads no clock. Which instance has a claim to a turn (favourite.go, home.go),
// every replica of Carryover decides alike about the same candidates. Among equals
// a policy takes one after the other, or draws ([PowerOfTwo]). How busy a
// candidate is has one definition (load.go).
package routing
