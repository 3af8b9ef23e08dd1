// Package process starts the programs that are measured, waits until they serve, and reads from /proc what they use.
package process
