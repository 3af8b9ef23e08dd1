// Package connector has the code that several vLLM KV connectors share, and one sub-package for each connector. The sub-package
// knows which kv_transfer_params each leg carries and what to keep for the next turn.
//
//	connector     prefill leg                   decode leg                             kept for the next turn
//	nixl          null template, or the ticket  prefill's answer                       decode's answer
//	orchestrated  null template                 prefill's answer at prefill's host     nothing
//	lmcache       ids, decode's receiver        ids and first token                    nothing
//	storage       nothing                       nothing                                nothing
//	mooncake      transfer id, ids              transfer id, ids, prefill's engine id  nothing
//
// A connector maps values to values (upstream.TicketOffer, upstream.TicketParams; the caller declares the interface, server.Connector).
// It sends no leg, reads no clock and never sees an http.ResponseWriter. Mooncake's asks a bootstrap server when it plans.
//
// Shared code: connectors that leave no ticket (notickets.go); the params of an engine's answer (params.go).
//
// # What makes sure that decode uses the right KV
//
//	connector         legs run          what ties decode's KV to the prompt                       decode waits for
//	nixl, multi       prefill first     blocks by position: both legs carry the proven ids        prefill's answer
//	orchestrated      prefill first     blocks by position, as the engines have it                prefill's answer
//	mooncake          together          blocks by position: both legs carry the same ids and      nothing; a prefill leg that fails
//	                                    a fresh transfer_id                                       ends decode's
//	lmcache           prefill, notice   chunks by the hash of their tokens; a tag and a salt      the notice that the KV has arrived
//	                                    of the attempt's own
//	lmcache-storage   prefill first     chunks by the hash of their tokens                        nothing; what is missing is computed
//
// Only with NIXL does prefill read KV that decode holds. With the other connectors a conversation stays on its decode instance,
// whose own prefix cache has it.
//
// A plan (upstream.Plan) says which legs run, each leg's endpoint, rank and members, how prefill's answer becomes a hand-over, and by
// which leg decode takes a hand-over that no other leg takes. Where the engine needs it, the plan also has a wait between the legs, a
// first piece of the answer from prefill, and a rewriting of decode's events. One runner in package turn executes all plans and knows no
// connector. A plan may reserve something; it is closed once, after the last call of its functions.
package connector
