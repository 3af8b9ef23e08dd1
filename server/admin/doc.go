// Package admin is the listener for operators: what each instance is doing, registration and draining of instances, and
// the reload of the configuration. It promises that
//
//   - a request without the bearer token gets nothing, where one is configured (guard.go);
//   - without a token it answers only requests that name a loopback host and come from no web page, so that no site that an
//     operator visits can reach it (DNS rebinding, cross-site requests);
//   - an instance is added only if its address is one that a leg can be sent to, and a list that is refused changes nothing
//     (instances.go);
//   - nothing of a client is shown: no prompt, no conversation, no credential.
package admin
