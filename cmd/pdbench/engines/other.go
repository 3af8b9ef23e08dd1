package engines

import (
	"encoding/json"
	"strconv"
)

// ChatPath is that of chat completions.
const ChatPath = "/v1/chat/completions"

const jsonMedia = "application/json"

// other answers everything that is no completion, as the recordings 13, 15, 17 and 18 have it. r is memory for reading a request, and
// room for the answer, behind the place of its head.
func (e *engine) other(route string, body, requestID []byte, r *chatRequest, room *[]byte) []byte {
	answer := func(status, media, text string) []byte {
		*room = append(*room, text...)
		return respond(*room, status, media, requestID)
	}
	switch route {
	case "GET /health":
		return answer("200 OK", jsonMedia, "")
	case "GET /version":
		return answer("200 OK", jsonMedia, `{"version":"0.32.0"}`)
	case "GET /metrics":
		return answer("200 OK", "text/plain; version=0.0.4; charset=utf-8", string(e.metrics(nil)))
	case "GET /v1/models":
		created := strconv.FormatInt(e.started.Unix(), 10)
		return answer("200 OK", jsonMedia, `{"object":"list","data":[{"id":"`+Model+`","object":"model","created":`+created+`,"owned_by":"vllm","root":"`+Model+
			`","parent":null,"max_model_len":1048576,"permission":[]}]}`)
	case "POST " + ChatPath + "/render":
		return refusal("403 Forbidden", "PermissionDeniedError", "null", 403,
			"Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.", requestID)
	case "POST /tokenize":
		return e.tokenize(body, requestID, r, room)
	}
	return answer("404 Not Found", jsonMedia, `{"detail":"Not Found"}`)
}

// tokenize answers with the ids of a prompt, as recording 03.
func (e *engine) tokenize(body, requestID []byte, r *chatRequest, room *[]byte) []byte {
	if err := r.read(e.seed, body); err != nil {
		return refusal("400 Bad Request", "BadRequestError", `"messages"`, 400, err.Error(), requestID)
	}
	out := strconv.AppendInt(append(*room, `{"count":`...), int64(r.tokens()), 10)
	out = e.rendered.prompt(append(out, `,"max_model_len":1048576,"tokens":`...), r)
	*room = append(out, `,"token_strs":null}`...)
	return respond(*room, "200 OK", jsonMedia, requestID)
}

// refusal is an error as vLLM's API server has it. param is JSON.
func refusal(status, kind, param string, code int, message string, requestID []byte) []byte {
	text, _ := json.Marshal(message) // never fails for a string
	out := append(append(make([]byte, headRoom), `{"error":{"message":`...), text...)
	out = append(out, `,"type":"`+kind+`","param":`+param+`,"code":`+strconv.Itoa(code)+`}}`...)
	return respond(out, status, jsonMedia, requestID)
}

// metrics appends what routers read of vLLM's metrics. The cache is so large that nobody has to make room in it: what a proxy does then
// depends on a deployment's sizes, and is not what is measured here.
func (e *engine) metrics(dst []byte) []byte {
	const engine = `{engine="0",model_name="` + Model + `"} 0.0` + "\n"
	for _, gauge := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} {
		dst = append(dst, "# TYPE "+gauge+" gauge\n"+gauge+engine...)
	}
	dst = append(dst, "# TYPE vllm:cache_config_info gauge\n"+`vllm:cache_config_info{block_size="`+strconv.Itoa(blockTokens)+
		`",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="1099511627776",num_gpu_blocks="68719476736"} 1.0`+"\n"...)
	dst = append(dst, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds "...)
	return append(strconv.AppendFloat(dst, float64(e.started.UnixMicro())/1e6, 'f', -1, 64), '\n')
}
