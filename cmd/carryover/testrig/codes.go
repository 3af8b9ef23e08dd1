package testrig

import (
	"net/http"

	"carryover/server/record"
)

// Code is the member code of an error that clients get.
type Code struct {
	Name   string
	Status int // of its answer; an engine's own status where it is 0
	Means  string
}

// Codes returns all codes, in the order of their status.
func Codes() []Code { return codes }

//nolint:gochecknoglobals // immutable table
var codes = []Code{
	{"bad_request", http.StatusBadRequest, "the body is no JSON object, or a member that Carryover reads is wrong"},
	{"invalid_type", http.StatusBadRequest, "a member has another type than it must have"},
	{"invalid_conversation_id", http.StatusBadRequest, "a conversation's name is neither a string of at most 512 bytes nor a whole number"},
	{"invalid_tenant", http.StatusBadRequest, "the header of `--tenant-header` is there twice"},
	{"invalid_credential", http.StatusBadRequest, "there are two `Authorization` or `x-api-key` lines"},
	{"unsupported", http.StatusBadRequest, "responses are not stored: send the whole history"},
	{"unsupported_parameter", http.StatusBadRequest, "a member that only the proxy may set (`kv_transfer_params`), or that needs stored responses"},
	{"invalid_request", 0, "the engine refused the request (400, 404, 413 or 422), with its message"},
	{"invalid_api_key", 0, "engines refuse the key of the request, which `--forward-authorization` sends on (401 or 403)"},
	{"prefiller_not_allowed", http.StatusForbidden, "`x-prefiller-host-port` names an address that `--prefiller-allow` does not"},
	{"not_found", http.StatusNotFound, "the endpoint is unknown"},
	{"model_not_found", http.StatusNotFound, "no instance serves the model"},
	{"method_not_allowed", http.StatusMethodNotAllowed, "the endpoint is asked with another method; `Allow` names the right one"},
	{"request_timeout", http.StatusRequestTimeout, "the body did not come in time"},
	{"request_too_large", http.StatusRequestEntityTooLarge, "the body is larger than `--max-body-bytes`, or a hundred times as large as it came"},
	{"unsupported_media_type", http.StatusUnsupportedMediaType, "the body is no `application/json`"},
	{"unsupported_encoding", http.StatusUnsupportedMediaType, "the body is compressed in another way than `Accept-Encoding` lists"},
	{"tenant_limit", http.StatusTooManyRequests, "the tenant has `--max-per-tenant` turns already"},
	{"rate_limited", http.StatusTooManyRequests, "the engines answered 429"},
	{"internal", http.StatusInternalServerError, "a fault of Carryover; the log has it"},
	{"prefill_failed", http.StatusBadGateway, "the prefill leg failed"},
	{"decode_failed", http.StatusBadGateway, "the decode leg failed"},
	{"bad_prefill_answer", http.StatusBadGateway, "prefill answered what can't be read"},
	{"bad_decode_answer", http.StatusBadGateway, "decode answered what can't be read"},
	{"stream_limit", http.StatusBadGateway, "the answer is longer than Carryover takes"},
	{"upstream_auth", http.StatusBadGateway, "engines refuse Carryover's key (`OPENAI_API_KEY`)"},
	{"prefill_unavailable", http.StatusServiceUnavailable, "no prefill instance can be reached"},
	{"decode_unavailable", http.StatusServiceUnavailable, "no decode instance can be reached"},
	{"queue_full", http.StatusServiceUnavailable, "`--max-queue` turns wait already"},
	{"queue_timeout", http.StatusServiceUnavailable, "the turn waited for `--queue-timeout`"},
	{"overloaded", http.StatusServiceUnavailable, "bodies in flight, and answers that are held, take `--max-inflight-bytes`, or one client's share of it"},
	{"server_shutting_down", http.StatusServiceUnavailable, "the process ends"},
	{"prefill_timeout", http.StatusGatewayTimeout, "prefill did not answer within `--prefill-timeout`, and `--prefill-failure` is `error`"},
	{"decode_timeout", http.StatusGatewayTimeout, "decode did not begin a stream within `--first-byte-timeout`, or did not give a whole answer within `--answer-timeout`"},
	{"stream_idle_timeout", http.StatusGatewayTimeout, "decode sent nothing for `--idle-timeout`"},
	{"client_gone", record.StatusClientGone, "the client closed the connection; only the log has it"},
}
