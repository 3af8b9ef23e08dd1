// Package server is the side of Carryover that clients see: it speaks the OpenAI API and Anthropic's Messages. Package turn runs each turn
// from its request to the ticket that it leaves; this package has what is around the turns. It serves their endpoints, the list of models
// (models.go, served.go), the counts of tokens (count_tokens.go) and whether the replica is ready (ready.go), on the routes of routes.go.
// server.go puts it together, starts it and drains it.
//
// The caller is the composition root, which makes the dependencies (deps.go) and the limits (config.go).
//
// What would become of a request is answered by the code of the turn, so that it can't differ from what turns do (package explain).
// Outlines tell where a history was rewritten (package outline); they hold no text and prove nothing.
package server
