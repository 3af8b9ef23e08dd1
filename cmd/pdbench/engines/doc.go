// Package engines has a prefill and a decode engine that cost next to nothing and notice every mistake. They answer as vLLM with
// NixlConnector does, by rules instead of a model (tokens.go), and keep an account of each hand-over and each ticket (ledger.go). Serve runs
// them in a process of their own; another process sets and asks them with a Pair.
package engines
