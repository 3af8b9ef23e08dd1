// Package orchestrated speaks to backends whose connector answers with kv_transfer_params of its own, such as AWS Neuron's NxDI. It does
// what production-stack's disaggregated_prefill_orchestrated does: prefill gets the null template and answers with params, and decode gets
// these params unchanged except for remote_host. This becomes the prefill instance's host, because backends send a name of their own there,
// such as the address of a container. All other members are opaque (params.go).
//
// An earlier form of the same contract sends decode prefill's whole answer as disagg_prefill_resp instead.
//
// Nothing is kept for a next turn: whether a backend's params could be used again is not known.
package orchestrated
