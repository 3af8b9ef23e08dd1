// Package admin is the listener for operators: a page that shows what the program does, what each instance is doing, registration
// and draining of instances, and the reload of the configuration. It promises that
//
//   - a request without the bearer token gets nothing, where one is configured (guard.go);
//   - without a token it answers only requests that name a loopback host and come from no web page but its own, so that no site that
//     an operator visits can reach it (DNS rebinding, cross-site requests);
//   - an instance is added only if its address is one that a leg can be sent to, and a list that is refused changes nothing
//     (instances.go);
//   - the page runs no script and loads nothing but its own files, whatever the data say (page.go);
//   - who looks on costs a turn nothing, and who looks on too slowly is left behind (live.go);
//   - nothing of a client is shown: no prompt, no id of a conversation but the beginning of its keyed hash, no credential
//     (turns.go). What POST /admin/explain says of a request holds no more of it than its model's name (package server).
//
// It is for operators alone: they may ask about the turns of every tenant.
package admin
