// Package convcachetest holds the contract of ticket stores, for tickets and for notes of hand-backs, as checks.
//
// A store's test calls Run with a function that opens an empty store and its clock. The checks are values as well
// (Checks), so that the package's own tests can show that a broken store fails them. A check needs nothing but Peek,
// Take, Put and a clock that moves when told; it never waits.
//
// Steps of a check are separated by commas. Tickets are letters, each with tokens of its own unless a step says which;
// conversations are numbers. An outcome is named where it is another than success.
//
//	chain a 70 1 2   a has 70 tokens, in blocks of 32 that hold what the numbers stand for; with "otherwise" another
//	                 rest, with "coarse" blocks of 48; with 0 tokens no chain
//	put a b 2m       puts each, for a minute unless a time is given, a note for its own time; "over c": the last displaces c
//	take a           takes it and compares it with what was put
//	note a           makes a, which was taken, the note of its hand-back
//	back a           put, take and note
//	peek a b         looks the conversation up, and finds these, the newest first; none is "empty"
//	peek 1 2 a b     looks conversations up at once; "nowhere" is none
//	in 2             what follows is in conversation 2
//	anew             what follows is in a conversation, and of tickets, that no step before has named
//	wait 1m          moves the clock on
//	ended take a …   does so with a context that has ended
//	race             has 32 callers take one ticket, twenty times
package convcachetest
