// Package pairs has what a prefill and a decode incarnation have shown together: whether prefill answers decode's
// tickets (state.go), whether decode reads prefill's hand-overs (loads.go), and whether a leg of the two may release
// tickets (releases.go). Package fleet keeps one [State] for each pair, and drops it with either incarnation.
//
// It promises that
//
//   - a pair that has never answered a ticket gets one at a time, and a stopped pair gets none before its next trial is
//     due;
//   - an unused ticket is released only by a pair whose incarnations have exchanged KV;
//   - a nil State, and one of an incarnation that has ended, allow no reuse.
//
// # Trials and strikes
//
// Some engines never answer a ticket (a prefill instance without bidirectional_kv_xfer; kv_load_failure_policy
// "recompute" on vLLM 0.32), and some answer each with a 5xx. So the first ticket on a pair is a trial, one at a time,
// with a time limit. A pair that does not answer its trial is stopped; so is any pair after three tickets in a row that
// were unanswered or answered 5xx. An answer clears the strikes before it; it counts when prefill has answered, not when
// the turn ends. A broken connection is no strike: busy API servers close idle connections under legs. A stopped pair is
// left alone for 1, 2, 4, 8, 16, 30, 30 … minutes, and then one turn is its trial again.
//
// Hand-overs have the same strikes and stops, apart from those of tickets, but no first trial: nearly all pairs can
// exchange KV, and those that can't have a wrong address or another version.
package pairs
