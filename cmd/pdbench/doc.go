// Command pdbench measures what a proxy in front of prefill and decode instances costs: CPU time per request and per streamed chunk, memory
// per open stream, delivered chunks, added time to the first token. It runs Carryover and its rivals as processes of their own, on
// loopback, in front of engines that cost next to nothing and notice every mistake, and compares them with the bars that Carryover has to
// hold. docs/benchmarks.md says how it measures, and has the figures.
//
// It promises that what it prints has been earned: a figure of which one answer was not as it should be, or of whose run the engines have
// counted a fault, does not count, and the exit code says so. It compares only within one run: contenders take turns in each round, in an
// order that rotates, and bars are ratios of medians.
//
// Its first argument is a sub-command. Each is a package: bench, which it is without one, and handback, a report on simulated engines, whose
// clock is what it measures in. Two more serve as parts of a measurement, in processes of their own: engines and relay, which is a contender.
//
// It imports nothing of Carryover's, so that it cannot share its mistakes: what it measures are processes, and so are simulated engines
// (carryover sim).
//
// Exit codes: 0 when every bar that must hold does; 1 when one does not, or a figure does not count; 2 when it was asked wrongly or could not
// measure; 3 when all that is wrong is that something was not measured, which the Python example is without its file. A report that can't be
// made fails with 1, too.
package main
