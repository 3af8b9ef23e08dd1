// Package storage runs turns where prefill and decode share what LMCache has stored (remote_url, as fs:// or Redis, or one LMCache server
// for both): prefill puts the KV of a prompt there, and decode finds it by the hashes of its ids. Both legs are the client's own request,
// no kv_transfer_params go either way, and nothing is announced; KV that is missing, or not there yet, decode computes. Measured with
// LMCache 0.5.6 and vLLM 0.32: decode loads all whole chunks of the prompt, with prefill dead those that are stored.
//
// It can't tell whether decode found anything, keeps nothing for a next turn but what is stored, and keeps no tenants apart by
// cache_salt, which LMCache's keys do not have (measured). vLLM's ExampleConnector is not for it: with a folder that is seen before its
// file, or a prompt of several steps of prefill, decode's engine ends (measured).
package storage
