// Package record is what is known of a turn that has ended: what it asked for, which way it went, what it reused or why it reused
// nothing, its legs, its answer, its times and how it failed. Steps of the turn report to a [Builder], which makes the record ([Turn]); observers read it: the log line
// (line.go), package journal, package telemetry and the operators' listener. Counts has what no turn's record has.
//
// The package imports upstream and its requests alone, and decides nothing. A record has no prompt, no answer, no
// conversation id in clear, and no text of a client's own, except the model's name, which [Asked.ModelShown] hides where no engine is
// known to serve it.
package record
