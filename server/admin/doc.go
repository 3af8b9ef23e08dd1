// Package admin is the listener for operators: a page that shows what the program and each instance are doing, registration and draining of
// instances, and the reload of the configuration. It promises that
//
//   - if a bearer token is configured, a request without it gets no data (guard.go);
//   - without a token it answers only requests that name a loopback host and come from no web page but its own, so that no site that an
//     operator visits can reach it (DNS rebinding, cross-site requests);
//   - an instance is added only if legs can be sent to its address, and a list that is refused changes nothing (instances.go);
//   - the page runs no script and loads no file except its own, whatever the data contain (page.go);
//   - viewers of the page cost a turn nothing, and a viewer that reads too slowly is disconnected (live.go);
//   - nothing of a client is shown: no prompt, no credential, and of a conversation's id only the beginning of its keyed hash (turns.go).
//
// It is for operators alone: they may ask about the turns of every tenant.
package admin
