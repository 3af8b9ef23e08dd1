// Package contender starts what can stand between clients and engines: Carryover, its rivals, and nothing at all. Each is a process of its
// own, in front of engines that are one, too.
package contender
