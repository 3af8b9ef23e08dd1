// Package kvready waits for the notifications that KV has arrived at decode. The prefill workers of LMCache send them over
// ZeroMQ to pd_proxy_host:pd_proxy_port of their configuration; this package is the listener there.
//
// It promises that
//
//   - a notification is a hint: it can end a wait, and it does nothing else. It creates no state. A wait begins before its
//     prefill leg is sent, so a notification whose id is not expected is dropped (waits.go): its id is stale (after a restart of
//     Carryover libzmq delivers what it has kept), or belongs to another replica, or is foreign. The number of waits bounds the
//     memory, whatever peers send;
//   - a wait is over when the expected number of notifications has come, one from each prefill worker. The workers can't be
//     told apart (LMCache 0.5.6, pd_backend.py: a notification has only the type and the request id). Notifications may come
//     before the call of Ready or after it (measured: from 182 ms before prefill's answer to 1,000 ms after it);
//   - no message of a peer causes a panic or blocks, and no peer disturbs another (note.go, package zmtp);
//   - a notification that is not expected here is handed at most once to a Relay, where replicas share one (relay.go).
//
// It ignores any message that is not a notification: LMCache's CancelNotif has a request id too, and says the opposite.
//
// An engine that fails to move the KV sends nothing, so each wait needs a time limit: the context of Ready has it. Connectors
// call Expect; cmd runs Serve and Run.
package kvready
