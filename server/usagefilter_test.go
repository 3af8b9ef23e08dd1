package server_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"carryover/upstream/vllmsim"
)

// requestParts are what differs between two answers to one request.
var requestParts = regexp.MustCompile(`"id":"[a-z-]*[0-9a-f-]+"|"created":[0-9]+|"id":"(chatcmpl-tool|call)[^"]*"`)

// The token proof asks decode for ids and for its usage; a client sees what it would have got without that, but for kv_transfer_params: vLLM
// 0.33 has that member in every chunk, null or not, and no client ever gets it.
func TestUsageFilter_ClientSeesWhatAStockEngineSends(t *testing.T) {
	text := `{"model":"m","prompt":"SAY some words of text.","conversation_id":"c","stream":true}`
	chat := func(say, members string) string {
		return fmt.Sprintf(`{"model":"m","conversation_id":"c","stream":true,"messages":[{"role":"user","content":%s}]%s}`, jsonOf(say), members)
	}
	for name, request := range map[string]string{
		"plain":        chat("SAY some words.", ""),
		"usage":        chat("SAY some words.", `,"stream_options":{"include_usage":true}`),
		"steady usage": chat("SAY some words.", `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`),
		"no usage":     chat("SAY some words.", `,"stream_options":{"include_usage":false,"continuous_usage_stats":true}`),
		"options":      chat("SAY some words.", `,"stream_options":{}`),
		"cut":          chat("Talk.", `,"max_tokens":7`),
		"one token":    chat("Talk.", `,"max_tokens":1`),
		"nothing":      chat("SAY words.", `,"stop_token_ids":[1]`),
		"stop string":  chat("SAY one two three.", `,"stop":"two"`),
		"reasoning":    chat("THINK SAY it.", ""),
		"tool":         chat(`CALL weather {"city": "Paris", "days": 3}`, weatherTool),
		"ids":          chat("Talk.", `,"return_token_ids":true`),
		"logprobs":     chat("Talk.", `,"logprobs":true,"top_logprobs":2`),
		"text":         text,
		"text, usage":  plus(text, `,"stream_options":{"include_usage":true}`),
		"text, ids":    plus(text, `,"return_token_ids":true,"logprobs":1`),
	} {
		path := chatPath
		if strings.HasPrefix(name, "text") {
			path = textPath
		}
		for _, plugIn := range []bool{false, true} {
			for n := range 4 {
				version, empty := vllmsim.VLLM032, n%2 == 1
				if n > 1 {
					version = vllmsim.VLLM033
				}
				t.Run(fmt.Sprint(name, " ", version, " ", plugIn, " ", empty), func(t *testing.T) {
					r, sims := stock(t, nil, func(c *vllmsim.Config) {
						c.Version, c.Params, c.OutputTokenIDs, c.EmptyDeltas = version, vllmsim.ParamsFinish, plugIn, empty
					})
					resp, err := r.client.Post(sims[1].URL()+path, "application/json", strings.NewReader(strings.Replace(request, `"conversation_id":"c",`, "", 1)))
					if err != nil {
						t.Fatal(err)
					}
					want := strings.ReplaceAll(r.rest(resp).body, `,"kv_transfer_params":null`, "")
					p := r.sendTo(path, request)
					r.wantOK(p, "miss;")
					normal := func(s string) string { // without what the usage tells of prefill's caches
						return strings.ReplaceAll(requestParts.ReplaceAllString(s, "_"), `,"prompt_tokens_details":{"cached_tokens":0}`, "")
					}
					if got := normal(p.body); got != normal(want) {
						t.Errorf("got\n%s\nwant\n%s", got, normal(want))
					}
					asked := false
					for _, l := range sims[1].Requests() {
						asked = asked || strings.Contains(string(l.Body), `"kv_transfer_params"`) && strings.Contains(string(l.Body), `"include_usage":true`)
					}
					if !asked {
						t.Error("decode was not asked for its usage")
					}
				})
			}
		}
	}
}

const weatherTool = `,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]`
