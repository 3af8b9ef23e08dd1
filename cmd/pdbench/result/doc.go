// Package result has what measurements share: samples and their percentiles, bars, and exit codes.
package result
