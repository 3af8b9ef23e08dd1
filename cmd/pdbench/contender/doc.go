// Package contender starts what can stand between clients and engines: Carryover, its rivals, or nothing. Each contender is a process of its
// own, in front of engines that are another process.
package contender
