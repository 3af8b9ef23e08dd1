// Package talk is conversations with simulated engines, in the engines' clock: what clients are going to say, and when (plan.go), the clients
// (client.go), and what they have seen (turns.go). It measures time to the first token and reuse; what a request costs is measured by
// package load, whose clients cost next to nothing.
package talk
