// Package fleet runs simulated engines (carryover sim) and Carryover in front of them, each a process of its own on loopback. What a report
// says of engines is what these have counted.
package fleet
