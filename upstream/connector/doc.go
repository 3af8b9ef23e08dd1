// Package connector is the folder of the vLLM KV connectors: a package each knows which kv_transfer_params each leg carries
// and what to keep for the next turn.
//
//	connector  prefill leg                   decode leg           kept for the next turn
//	nixl       null template, or the ticket  prefill's answer     decode's answer
//
// A connector maps values to values (upstream.TicketOffer, upstream.Kept; the interface is the caller's, server.Connector).
// It performs no I/O, reads no clock and never sees an http.ResponseWriter.
package connector
