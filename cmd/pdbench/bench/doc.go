// Package bench measures what Carryover costs beside its rivals. Workloads are a table (workloads.go). Contenders take turns in each round
// (runner.go), bars are ratios of medians of one run (bars.go, medians.go), and what it all comes to is a report: JSON and tables (table.go).
package bench
