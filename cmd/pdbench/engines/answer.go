package engines

import (
	"strconv"
	"time"
)

// Model is what both engines serve.
const Model = "bench"

// answerID appends what vLLM makes of X-Request-Id.
func answerID(dst, requestID []byte) []byte {
	return append(append(dst, "chatcmpl-"...), requestID...)
}

// appendParams appends the kv_transfer_params of an answer, as the recordings 01 (prefill) and 21 (decode) of
// testdata/exchanges/vllm-0.32 have them, and those of sse/testdata for vLLM 0.33. cached is what prefill did not compute; output are the ids that decode's plug-in adds.
func (e *engine) appendParams(dst, requestID []byte, h *holding, cached int, output []byte) []byte {
	flags := `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[`
	if e.decodes {
		flags = `{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":[[`
	}
	dst = append(dst, flags...)
	for i := range h.blocks() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(h.firstBlock)+uint64(i), 10)
	}
	dst = append(append(append(dst, `]],"remote_engine_id":"`...), e.id...), `","remote_request_id":"`...)
	dst = append(answerID(dst, requestID), '-')
	dst = appendHex(dst, h.seq)
	dst = append(dst, `","remote_host":"127.0.0.1","remote_port":`...)
	dst = strconv.AppendInt(dst, int64(e.sidePort), 10)
	dst = append(dst, `,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":`...)
	dst = strconv.AppendInt(dst, int64(h.tokens), 10)
	dst = append(dst, `,"remote_blocks_expiry_time":`...)
	if e.decodes { // on a clock that only this engine knows
		dst = strconv.AppendFloat(dst, time.Since(e.started).Seconds()+ticketLife.Seconds(), 'f', 6, 64)
	} else {
		dst = append(dst, "null"...)
	}
	if e.pace.Load().VLLM != VLLM032 {
		dst = append(dst, `,"remote_registration_generation":1`...)
	}
	dst = append(dst, `,"transfer_mode":"pull"`...)
	if !e.decodes {
		dst = strconv.AppendInt(append(dst, `,"remote_prefill_cached_tokens":`...), int64(cached), 10)
	}
	if output != nil {
		dst = append(append(dst, `,"output_token_ids":`...), output...)
	}
	return append(dst, '}')
}

// ticketLife is vLLM's decoder_kv_blocks_ttl. These engines count nothing after it; no measurement is as long.
const ticketLife = 480 * time.Second

// appendHex appends eight digits.
func appendHex(dst []byte, n uint32) []byte {
	const digits = "0123456789abcdef"
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[n>>shift&15])
	}
	return dst
}

// whole is an answer in one piece.
type whole struct {
	created   int64
	requestID []byte
	text      []byte
	finish    string
	ids       []byte // of the answer, nil unless asked for
	prompt    []byte // ids, the same
	tokens    int    // of the prompt
	output    int
	cached    int
	params    []byte // nil for null
	vllm      Version
}

// append appends the answer's JSON, as the recordings 01, 02 and 10 have it.
func (a *whole) append(dst []byte) []byte {
	dst = append(answerID(append(dst, `{"id":"`...), a.requestID), `","object":"chat.completion","created":`...)
	dst = strconv.AppendInt(dst, a.created, 10)
	dst = append(dst, `,"model":"`+Model+`","choices":[{"index":0,"message":{"role":"assistant","content":"`...)
	dst = append(dst, a.text...)
	dst = append(dst, `","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":"`...)
	dst = append(append(dst, a.finish...), `","stop_reason":null,"token_ids":`...)
	dst = orNull(dst, a.ids)
	dst = append(dst, `,"routed_experts":null}],"service_tier":null`...)
	dst = append(append(dst, a.vllm.fingerprint()...), `,"usage":`...)
	dst = append(a.appendUsage(dst), `,"multimodal_tokens":null},"completion_tokens_details":null}`...)
	dst = append(dst, `,"prompt_logprobs":null,"prompt_token_ids":`...)
	dst = orNull(dst, a.prompt)
	dst = append(dst, `,"prompt_text":null,"kv_transfer_params":`...)
	dst = orNull(dst, a.params)
	return append(dst, `,"ec_transfer_params":null,"metrics":null}`...)
}

// appendUsage appends the usage, up to where a stream's and a whole answer's differ.
func (a *whole) appendUsage(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), int64(a.tokens), 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), int64(a.tokens+a.output), 10)
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(a.output), 10)
	dst = strconv.AppendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), int64(a.cached), 10)
	return append(dst, `,"created_cache_tokens":0`...)
}

func orNull(dst, value []byte) []byte {
	if value == nil {
		return append(dst, "null"...)
	}
	return append(dst, value...)
}

// headRoom is left in front of a body for the head of its message, which is known when the body is.
const headRoom = 256

// respond puts the head in front of a body that begins headRoom bytes into message, and returns both.
func respond(message []byte, status, media string, requestID []byte) []byte {
	head := append(make([]byte, 0, headRoom), "HTTP/1.1 "...)
	head = append(append(head, status...), "\r\ncontent-type: "...)
	head = append(append(head, media...), "\r\ncontent-length: "...)
	head = strconv.AppendInt(head, int64(len(message)-headRoom), 10)
	if len(requestID) > 0 && len(requestID) <= headRoom/2 {
		head = append(append(head, "\r\nx-request-id: "...), requestID...)
	}
	head = append(head, "\r\n\r\n"...)
	at := headRoom - len(head)
	copy(message[at:], head)
	return message[at:]
}
