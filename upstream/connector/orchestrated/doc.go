// Package orchestrated speaks to backends whose connector answers kv_transfer_params of its own, as production-stack's
// disaggregated_prefill_orchestrated does (AWS Neuron's NxDI is one): prefill gets the null template and answers with params, and decode
// gets these as they are, but for remote_host, which is the prefill instance's: backends tell what they call themselves, such as the
// address of a container. What else is in the params is the backend's business and is not looked at (params.go).
//
// An earlier form of the same contract gives decode prefill's whole answer as disagg_prefill_resp in their place.
//
// Nothing is kept for a next turn: what a backend's params would be worth then is not known.
package orchestrated
