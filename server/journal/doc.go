// Package journal keeps the last turns for operators: their turn records, in order and by conversation, and totals of all turns since the
// start. It is an observer of turns (record.Observer). It promises that
//
//   - it holds no prompts, answers, ids in clear, credentials or texts of engines, so that all of it may be shown;
//   - its memory is bounded, whatever clients send;
//   - Observe takes a lock for some microseconds at most, and never waits for a reader.
package journal
