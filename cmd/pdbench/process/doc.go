// Package process starts the programs that are measured, waits until they serve, and reads their resource use from /proc.
package process
