// Package result is what measurements have in common: samples and their percentiles, bars, exit codes.
package result
