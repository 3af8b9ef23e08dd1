// Package routing holds the policies by which a pool picks an instance. A policy
// is a function of the candidates and of the conversation's key; it performs no
// I/O, reads no clock, and every replica of Carryover decides alike.
package routing
