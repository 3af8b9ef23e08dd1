package engines

import (
	"encoding/json"
	"fmt"
)

// ChatPath is the path of chat completions.
const ChatPath = "/v1/chat/completions"

const jsonMedia = "application/json"

// other answers everything that is no completion, as in the recordings 13, 15, 17 and 18. r is memory for reading a request, and room is
// memory for the answer behind its head.
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
		return answer("200 OK", "text/plain; version=0.0.4; charset=utf-8", e.metrics())
	case "GET /v1/models":
		return answer("200 OK", jsonMedia, fmt.Sprintf(`{"object":"list","data":[{"id":%[1]q,"object":"model","created":%[2]d,"owned_by":"vllm","root":%[1]q,`+
			`"parent":null,"max_model_len":1048576,"permission":[]}]}`, Model, e.started.Unix()))
	case "POST " + ChatPath + "/render":
		return refusal("403 Forbidden", "PermissionDeniedError", "null", 403,
			"Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.", requestID)
	case "POST /tokenize":
		return e.tokenize(body, requestID, r, room)
	}
	return answer("404 Not Found", jsonMedia, `{"detail":"Not Found"}`)
}

// tokenize answers with the ids of a prompt, as in recording 03.
func (e *engine) tokenize(body, requestID []byte, r *chatRequest, room *[]byte) []byte {
	if err := r.read(e.seed, body); err != nil {
		return refusal("400 Bad Request", "BadRequestError", `"messages"`, 400, err.Error(), requestID)
	}
	out := e.rendered.prompt(fmt.Appendf(*room, `{"count":%d,"max_model_len":1048576,"tokens":`, r.tokens()), r)
	*room = append(out, `,"token_strs":null}`...)
	return respond(*room, "200 OK", jsonMedia, requestID)
}

// refusal returns an error of vLLM's API server. param is JSON.
func refusal(status, kind, param string, code int, message string, requestID []byte) []byte {
	text, _ := json.Marshal(message) // never fails for a string
	out := fmt.Appendf(make([]byte, headRoom), `{"error":{"message":%s,"type":%q,"param":%s,"code":%d}}`, text, kind, param, code)
	return respond(out, status, jsonMedia, requestID)
}

// metrics returns the metrics of vLLM that routers read. The cache is so large that no proxy has to save space: what it does then depends on
// a deployment's sizes, and is not measured here.
func (e *engine) metrics() string {
	text := ""
	for _, gauge := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} {
		text += fmt.Sprintf("# TYPE %[1]s gauge\n%[1]s{engine=\"0\",model_name=%[2]q} 0.0\n", gauge, Model)
	}
	return text + fmt.Sprintf("# TYPE vllm:cache_config_info gauge\n"+`vllm:cache_config_info{block_size="%d",enable_prefix_caching="True",engine="0",`+
		`kv_cache_size_tokens="1099511627776",num_gpu_blocks="68719476736"} 1.0`+"\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %f\n",
		blockTokens, float64(e.started.UnixMicro())/1e6)
}
