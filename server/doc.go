// Package server is the side of Carryover that clients see: it speaks the OpenAI API and Anthropic's Messages. Package turn runs each turn
// from its request to the ticket that it leaves; this package has what is around the turns. It serves their endpoints on the routes of
// routes.go and served.go: the list of models (models.go), the counts of tokens (count_tokens.go), and whether the replica is ready
// (ready.go). server.go puts it together, starts it and drains it; state.go is what operators read of it.
//
// The caller is the composition root, which makes the dependencies (deps.go) and the limits (config.go).
package server
