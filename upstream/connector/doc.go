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
//
// # What makes decode's KV the right one
//
//	connector         legs run          what ties decode's KV to the prompt                       decode waits for
//	nixl, multi       prefill first     blocks by position: both legs carry the proven ids        prefill's answer
//	orchestrated      prefill first     blocks by position, as the engines have it                prefill's answer
//	mooncake          together          blocks by position: both legs carry the same ids and      nothing; a prefill leg that fails
//	                                    a fresh transfer_id                                       ends decode's
//	lmcache           prefill, notice   chunks by the hash of their tokens; a tag and a salt      the notice that the KV has arrived
//	                                    of the attempt's own
//	lmcache-storage   prefill first     chunks by the hash of their tokens                        nothing; what is missing is computed
//	moriio            READ: in turn,    blocks by position: both legs carry the same ids          prefill's answer, or nothing
//	                  WRITE: together
//	p2pnccl           prefill first     the request id, which names both engines                  prefill's answer
//
// Only with NIXL does prefill read what decode holds. The others keep a conversation on its decode instance, whose own
// prefix cache has it.
//
// A plan (upstream.Plan) says which legs run in which order, each leg's endpoint, request id, rank and members, how
// prefill's answer becomes a hand-over, and where the engine needs it a wait between the legs, a first piece of the
// answer from prefill, and a rewriting of decode's events. One runner in package server executes plans and knows no
// connector. A plan may reserve something, and is closed once when nothing of it is called any more.
//
// Decode engines of P2P-NCCL and MoRI-IO count on KV of others for each request: without it they wait for ever, end, or
// answer from memory that was never written. Their connectors say so (Traits.NeedsPrefill), and whatever fails or is
// configured, decode gets nothing without a hand-over: a request that can't be disaggregated is refused with 400
// not_disaggregable.
package connector
