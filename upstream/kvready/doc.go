// Package kvready has the waits for "the KV has arrived", which the prefill workers of LMCache say over ZeroMQ: it is
// the listener at pd_proxy_host:pd_proxy_port of their configuration.
//
// It promises that
//
//   - a notification is a hint that ends a wait and nothing else. It creates no state: an id that is not expected is dropped
//     (waits.go), because a wait begins before its prefill leg is sent. Such an id is stale, as after a restart of ours, when
//     libzmq delivers what it has kept; or of another replica; or foreign. Memory is bounded by the waits, whatever is sent;
//   - a wait is over when as many notifications have come as were expected, one of each prefill worker, which can't be
//     told apart (LMCache 0.5.6, pd_backend.py: the type and the request id are all they say). They may come before Ready is
//     asked or after (measured: 182 ms before prefill's answer to 1,000 ms behind it);
//   - nothing that peers send panics or blocks, and no peer disturbs another (note.go, package zmtp);
//   - what is not expected here is handed to a Relay, where replicas share one, at most once (relay.go).
//
// It refuses whatever isn't a notification: of LMCache's other messages CancelNotif too has a request id, and says the
// opposite.
//
// An engine that fails to move the KV says nothing, so that each wait needs a time limit, which is that of the context.
// Connectors call Expect, cmd runs Serve and Run.
package kvready
