package engines

import (
	"fmt"
	"strconv"
	"time"
)

// Model is the model that both engines serve.
const Model = "bench"

// appendParams appends the kv_transfer_params of an answer, as in the recordings 01 (prefill) and 21 (decode) of
// testdata/exchanges/vllm-0.32, and for vLLM 0.33 in sse/testdata. cached is what prefill did not compute; output has the ids that decode's
// plug-in adds.
func (e *engine) appendParams(dst, requestID []byte, h *holding, cached int, output []byte) []byte {
	dst = fmt.Appendf(dst, `{"do_remote_prefill":%t,"do_remote_decode":%t,"remote_block_ids":[[`, !e.decodes, e.decodes)
	for i := range h.blocks() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(h.firstBlock)+uint64(i), 10)
	}
	expiry := "null"
	if e.decodes { // on a clock that only this engine knows
		expiry = strconv.FormatFloat((time.Since(e.started) + ticketLife).Seconds(), 'f', 6, 64)
	}
	dst = fmt.Appendf(dst, `]],"remote_engine_id":%q,"remote_request_id":"chatcmpl-%s-%08x","remote_host":"127.0.0.1","remote_port":%d,`+
		`"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":%d,"remote_blocks_expiry_time":%s`, e.id, requestID, h.seq, e.sidePort, h.tokens, expiry)
	if e.pace.Load().VLLM != VLLM032 {
		dst = append(dst, `,"remote_registration_generation":1`...)
	}
	dst = append(dst, `,"transfer_mode":"pull"`...)
	if !e.decodes {
		dst = fmt.Appendf(dst, `,"remote_prefill_cached_tokens":%d`, cached)
	}
	if output != nil {
		dst = append(append(dst, `,"output_token_ids":`...), output...)
	}
	return append(dst, '}')
}

// ticketLife is vLLM's decoder_kv_blocks_ttl. No measurement is as long, so these engines do not end tickets.
const ticketLife = 480 * time.Second

type whole struct {
	created   int64
	requestID []byte
	text      []byte
	finish    string
	ids       []byte // of the answer, nil unless asked for
	prompt    []byte // ids of the prompt, nil unless asked for
	tokens    int    // of the prompt
	output    int
	cached    int
	params    []byte // nil for null
	vllm      Version
}

// append appends the answer's JSON, as in the recordings 01, 02 and 10.
func (a *whole) append(dst []byte) []byte {
	return fmt.Appendf(dst, `{"id":"chatcmpl-%s","object":"chat.completion","created":%d,"model":"`+Model+`","choices":[{"index":0,"message":{"role":"assistant",`+
		`"content":"%s","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":%q,`+
		`"stop_reason":null,"token_ids":%s,"routed_experts":null}],"service_tier":null%s,"usage":%s,"multimodal_tokens":null},"completion_tokens_details":null},`+
		`"prompt_logprobs":null,"prompt_token_ids":%s,"prompt_text":null,"kv_transfer_params":%s,"ec_transfer_params":null,"metrics":null}`,
		a.requestID, a.created, a.text, a.finish, orNull(a.ids), a.vllm.fingerprint(), a.usage(), orNull(a.prompt), orNull(a.params))
}

// usage returns the part of usage that is the same in streams and whole answers.
func (a *whole) usage() string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"created_cache_tokens":0`,
		a.tokens, a.tokens+a.output, a.output, a.cached)
}

func orNull(value []byte) []byte {
	if value == nil {
		return []byte("null")
	}
	return value
}

// headRoom is the space in front of a body for the head, which is written after the body.
const headRoom = 256

// respond writes the head in front of a body that begins headRoom bytes into message, and returns both.
func respond(message []byte, status, media string, requestID []byte) []byte {
	var room [headRoom]byte
	head := fmt.Appendf(room[:0], "HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\nx-request-id: %s\r\n\r\n", status, media, len(message)-headRoom, requestID)
	at := headRoom - len(head)
	copy(message[at:], head)
	return message[at:]
}
