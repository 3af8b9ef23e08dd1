// Package fleet runs simulated engines (carryover sim) and Carryover in front of them, each a process on loopback. Reports about engines use
// the engines' own counts.
package fleet
