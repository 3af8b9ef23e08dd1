// Package facts reads what an engine tells of itself in /metrics: which incarnation it runs, how large its KV blocks are,
// whether it caches prefixes, and its load. It also has the answer to a yes-or-no question about an engine, a [Finding].
//
// It promises that
//
//   - several samples of a metric, as of several engines or processes, must agree, or the incarnation and the block size
//     are not known (metrics.go);
//   - a text that breaks off, or has more than its bound, is an error and tells nothing;
//   - values that make no sense are zero, and sums don't overflow (use.go).
//
// The package keeps nothing between two readings, and asks nothing of an engine. Package fleet does both.
package facts
