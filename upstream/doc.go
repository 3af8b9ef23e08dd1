// Package upstream is the engine side of Carryover: the vLLM instances, the
// pool they are picked from, and the two legs of a turn.
//
// It promises that
//
//   - an upstream path, header and address are never derived from what a client
//     sent: paths are constants per API, headers are built from an allow-list
//     (leg.go, client.go, transport.go), addresses come from the configuration;
//   - members of a request or of kv_transfer_params that nobody needs to change
//     reach the engine byte for byte (rewrite.go, connector/nixl, package rawjson);
//   - an error says whether any byte of the leg may have reached an engine
//     ([LegError.Sent]), because that alone decides what may be tried again;
//   - what an engine sends is checked, and its nesting bounded, before anything reads
//     it ([rawjson.Valid]);
//   - no client's departure, credential or model spoils for others what is found out
//     about an engine (question.go, capability.go, template.go);
//   - an answer is never taken for younger than it is, whatever stood still while it
//     was read ([Stream.CaughtUp]; conn.go, arrival.go);
//   - a leg ends when its context ends, or after the grace that decode gets then
//     (decode.go, stream.go), and no goroutine outlives it.
//
// It refuses to follow redirects, to use proxies from the environment, to
// decompress, and to let net/http repeat a request on its own.
//
// The package knows nothing of conversations, tickets or HTTP clients; package
// server calls it. What a KV connector puts on the wire is in the sub-package
// connector, how an instance is chosen in routing, and where instances come from
// in discovery.
package upstream
