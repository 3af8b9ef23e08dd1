// Package convcachetest holds the contract of ticket stores, for tickets and for notes of hand-backs, as checks.
//
// A store's test calls Run with a function that opens an empty store and its clock. The checks are
// values as well (Checks), each a function that returns an error, so that the package's own tests
// can show that a broken store fails them. A check needs nothing but Peek, Take, Put and a clock
// that moves when told; it never waits.
package convcachetest
