// Package talk holds conversations with simulated engines, in the engines' clock: what clients say and when (plan.go), the clients
// (client.go), and what they have seen (turns.go). It measures time to the first token and reuse. Package load measures the cost of a
// request, with clients that cost next to nothing.
package talk
