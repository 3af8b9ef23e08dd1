// Command carryover is a multi-turn proxy in front of disaggregated (prefill and decode) vLLM instances.
//
// The packages beside it are its parts. Package cli is the tree of commands and says what the exit codes mean; config reads flags,
// environment and configuration file; app puts the program together and runs it; doctor and demo are commands of their own.
// Package e2e tests the whole.
package main
