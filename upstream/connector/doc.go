// Package connector is the folder of the vLLM KV connectors, and what several of them share: a package each knows which
// kv_transfer_params each leg carries and what to keep for the next turn.
//
//	connector     prefill leg                   decode leg                             kept for the next turn
//	nixl          null template, or the ticket  prefill's answer                       decode's answer
//	orchestrated  null template                 prefill's answer at prefill's host     nothing
//	lmcache       ids, decode's receiver        ids and first token                    nothing
//	storage       nothing                       nothing                                nothing
//	mooncake      transfer id, ids              transfer id, ids, prefill's engine id  nothing
//	moriio        transfer id, ids              nulls, or prefill's answer; ids        nothing
//	p2pnccl       nothing                       nothing                                nothing
//
// A connector maps values to values (upstream.TicketOffer, upstream.Kept; the interface is the caller's, server.Connector).
// It sends nothing, reads no clock and never sees an http.ResponseWriter; what it has to ask of an engine the runner asks for it
// (upstream.Introduce).
//
// Shared are: connectors that leave no ticket (keeps.go); legs with ids and params (params.go); prefill legs of engines that keep the KV
// of some requests only (capped.go); request ids that name both engines (addressed.go).
package connector
