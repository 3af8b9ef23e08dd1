// Package bench measures what Carryover costs beside its rivals. Workloads are a table (workloads.go). Contenders take turns in each round
// (runner.go). Bars are ratios of medians of one run (bars.go, medians.go). The report is JSON and tables (table.go).
package bench
