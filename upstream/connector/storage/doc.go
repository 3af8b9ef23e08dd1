// Package storage runs turns where prefill and decode share LMCache's storage (remote_url, for example fs:// or Redis, or one LMCache
// server for both). Prefill stores the KV of a prompt there, and decode finds it by the hashes of its ids. Both legs are the client's own
// request; there are no kv_transfer_params and no notifications. Decode computes KV that is missing or not stored yet. Measured with
// LMCache 0.5.6 and vLLM 0.32: decode loads all whole chunks of the prompt; if prefill is dead, it loads the chunks that are stored.
//
// Carryover can't tell whether decode found anything, and for a next turn only the storage remains. cache_salt does not separate tenants,
// because LMCache's keys do not contain it (measured). vLLM's ExampleConnector can't be used here: decode's engine ends if it sees a
// folder before its file, or if prefill needed several steps for the prompt (measured).
package storage
