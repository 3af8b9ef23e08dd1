// Package journal keeps the last turns for operators: their receipts, in order and by conversation, and what all turns since the
// start come to. It is an observer of turns (server.Observer). It promises that
//
//   - it holds neither prompts nor answers, ids in clear, credentials or what engines say, so that everything of it may be shown;
//   - its memory is bounded, whatever clients send;
//   - Observe takes a lock for some microseconds at most, and waits for no one who reads receipts.
package journal
