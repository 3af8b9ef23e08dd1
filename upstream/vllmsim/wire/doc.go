// Package wire has what all endpoints of a simulated instance share: paths, error shapes, JSON as vLLM writes it, streams of named events,
// and the faults that damage an answer on its way to the client (faultwriter.go).
package wire
