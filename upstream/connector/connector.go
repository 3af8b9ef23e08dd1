// Package connector has the code that several vLLM KV connectors share, and one sub-package for each connector. The
// sub-package knows the kv_transfer_params of each leg, and what to keep for the next turn.
//
//	connector     prefill leg                   decode leg                             kept for the next turn
//	nixl          null template, or the ticket  prefill's answer                       decode's answer
//	orchestrated  null template                 prefill's answer at prefill's host     nothing
//	lmcache       ids, decode's receiver        ids and first token                    nothing
//	storage       nothing                       nothing                                nothing
//	mooncake      transfer id, ids              transfer id, ids, prefill's engine id  nothing
//
// A connector maps values to values (upstream.TicketOffer, upstream.TicketParams), as upstream.Connector says.
// It sends no leg and reads no clock. Mooncake's asks a bootstrap server when it plans.
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
// Only with NIXL does prefill read KV that decode holds. With the other connectors a conversation stays on its decode instance, whose
// own prefix cache has it.
//
// One runner in package turn executes all plans (upstream.Plan) and knows no connector. A plan may reserve something; it is closed once,
// after the last call of its functions.
package connector

import (
	"errors"
	"fmt"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// NoTickets is embedded by connectors with which prefill can't read KV that decode holds, so no answer leaves a ticket. Their Traits do
// not set Reuses.
type NoTickets struct{}

var errNoTickets = errors.New("the connector makes no tickets")

// ParseTicket always returns an error.
func (NoTickets) ParseTicket([]byte, int) (upstream.TicketParams, error) {
	return upstream.TicketParams{}, errNoTickets
}

// Release has nothing to release: it always returns an error.
func (NoTickets) Release(upstream.TicketOffer, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errNoTickets
}

// HandBack has nothing to hand back: it always returns an error.
func (NoTickets) HandBack(upstream.TicketOffer, string, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errNoTickets
}

// NullParams are the kv_transfer_params of a prefill leg without a ticket, as vLLM's example proxies and production-stack
// (route_orchestrated_disaggregated_request) send them: the two flags have values, the rest is null.
const NullParams = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

// MaxParams bounds an engine's kv_transfer_params in bytes, because decode's request repeats them. 100 kB is normal for a long context.
const MaxParams = 1 << 20

var errTooLarge = errors.New("kv_transfer_params: larger than 1 MiB")

// ParseParams parses the kv_transfer_params of an engine's answer: any JSON object of at most MaxParams bytes. The result shares the
// memory of raw. Errors quote nothing of raw.
func ParseParams(raw []byte) (rawjson.Object, error) {
	if len(raw) > MaxParams {
		return rawjson.Object{}, errTooLarge
	}
	params, err := rawjson.ParseObject(raw)
	if err != nil {
		return params, fmt.Errorf("kv_transfer_params: %w", err)
	}
	return params, nil
}
