// Package load is clients that hold conversations with what is measured, check every answer, and keep every sample. A Workload says what they
// do, and an Outcome what they have seen.
package load
