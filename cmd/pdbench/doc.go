// Command pdbench measures what a proxy in front of prefill and decode instances costs: CPU time per request and per streamed chunk, memory
// per open stream, delivered chunks, and added time to the first token. It runs Carryover and its rivals as processes on loopback, in front
// of engines that cost next to nothing and notice every mistake. It compares them with the bars that Carryover has to hold.
// docs/benchmarks.md has the method and the figures.
//
// A figure does not count if one answer was wrong or the engines counted a fault; the exit code says so. Comparisons are within one run:
// contenders take turns in each round, in an order that rotates, and bars are ratios of medians.
//
// The first argument is a sub-command, each a package: bench, the default, and handback, a report on simulated engines in the engines' clock.
// The sub-commands engines and relay (a contender) are parts of a measurement, in processes of their own.
//
// The program imports nothing of Carryover, so that it cannot share its mistakes. It measures processes; simulated engines are processes too
// (carryover sim).
//
// Exit codes:
//
//	0  every bar that must hold does
//	1  a bar does not hold, a figure does not count, or a report could not be made
//	2  the arguments are wrong, or it could not measure
//	3  the only fault is that something was not measured, such as the Python example without its file
package main
