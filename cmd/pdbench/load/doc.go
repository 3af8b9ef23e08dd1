// Package load has the clients that hold conversations, check every answer, and keep every sample. A Workload says what they do, and an
// Outcome what they have seen.
package load
