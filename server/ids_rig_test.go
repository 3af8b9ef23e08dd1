package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"carryover/server"
)

// byTokens uses tickets of any size.
func byTokens(c *server.Config) { c.ReuseMinTokens = 1 }

// askIDs is a text completion of ids.
func askIDs(conversation string, stream bool, ids ...int) string {
	b, _ := json.Marshal(map[string]any{"model": "m", "stream": stream, "prompt": ids, "conversation_id": conversation}) // always can be
	return string(b)
}

// count returns n ids from first on.
func count(first, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = first + i
	}
	return ids
}

// idAnswer is decode's answer to a prompt of ids, for a test to spoil.
type idAnswer struct {
	leg    leg
	prompt []int
	told   []int  // what the answer says of what was sampled
	usage  string // what it counts, where it was asked for
	params map[string]any
}

// outputIDs is what every decode instance of these tests samples.
func outputIDs() []int { return count(900, 10) }

func answerOf(l leg) *idAnswer {
	var request struct{ Prompt []int }
	_ = json.Unmarshal([]byte(l.body), &request) // a leg that is no JSON fails elsewhere
	a := &idAnswer{leg: l, prompt: request.Prompt, told: outputIDs()}
	a.params = map[string]any{
		"do_remote_prefill": false, "do_remote_decode": true, "remote_engine_id": engineID, "remote_request_id": "cmpl-" + l.id(),
		"remote_host": engineHost, "remote_port": 5601, "tp_size": 1, "remote_blocks_expiry_time": 12345.5,
	}
	a.holds(len(a.prompt) + saidIDs - 1)
	if !l.streams() || strings.Contains(l.body, `"include_usage":true`) {
		a.usage = usageOf(a)
	}
	return a
}

// holds sets what the blocks are said to hold.
func (a *idAnswer) holds(tokens int) {
	a.params["remote_num_tokens"] = tokens
	a.params["remote_block_ids"] = [][]int{count(7, (tokens+rigBlock-1)/rigBlock)}
}

// events are the answer as a stream: one event for each id, then the finish and perhaps the usage.
func (a *idAnswer) events() []string {
	var all []string
	chunk := func(choice string, more string) {
		all = append(all, `{"id":"cmpl-`+a.leg.id()+`","object":"text_completion","choices":[`+choice+`]`+more+`}`)
	}
	for i, id := range a.told {
		prompt := "null"
		if i == 0 {
			prompt = list(a.prompt)
		}
		chunk(fmt.Sprintf(`{"index":0,"text":" w","finish_reason":null,"prompt_token_ids":%s,"token_ids":[%d]}`, prompt, id), "")
	}
	chunk(`{"index":0,"text":"","finish_reason":"stop","stop_reason":null,"token_ids":[]}`, `,"kv_transfer_params":`+jsonOf(a.params))
	if a.usage != "" {
		all = append(all, `{"id":"cmpl-`+a.leg.id()+`","object":"text_completion","choices":[],"usage":`+a.usage+`}`)
	}
	return append(all, "[DONE]")
}

// whole is the answer in one piece.
func (a *idAnswer) whole() string {
	usage := ""
	if a.usage != "" {
		usage = `,"usage":` + a.usage
	}
	return `{"id":"cmpl-` + a.leg.id() + `","object":"text_completion","choices":[{"index":0,"text":" w w","finish_reason":"stop","stop_reason":null,"prompt_token_ids":` +
		list(a.prompt) + `,"token_ids":` + list(a.told) + `}]` + usage + `,"kv_transfer_params":` + jsonOf(a.params) + `}`
}

func list(ids []int) string { return jsonOf(ids) }

func jsonOf(v any) string {
	b, _ := json.Marshal(v) // numbers, strings and lists of them always can be
	return string(b)
}

// prefillsIDs is a prefill instance that says which ids it has computed.
func prefillsIDs(w http.ResponseWriter, _ *http.Request, l leg) { prefilledIDs(w, l, handover(l)) }

func prefilledIDs(w http.ResponseWriter, l leg, params string) {
	answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":"w","finish_reason":"length","prompt_token_ids":`+list(l.prompt())+`}],"kv_transfer_params":`+params+`}`)
}

// decodesIDs is a decode instance whose answers are spoilt; nil spoils nothing.
func decodesIDs(spoil func(*idAnswer)) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, l leg) {
		a := answerOf(l)
		if spoil != nil {
			spoil(a)
		}
		if l.streams() {
			say(w, a.events()...)
		} else {
			answerJSON(w, a.whole())
		}
	}
}

// inIDs makes all engines of a rig speak ids.
func (r *rig) inIDs(spoil func(*idAnswer)) {
	for _, e := range r.prefill {
		e.always(prefillsIDs)
	}
	for _, e := range r.decode {
		e.always(decodesIDs(spoil))
	}
}

// sendIDs sends one text completion of ids.
func (r *rig) sendIDs(conversation string, stream bool, ids ...int) reply {
	r.t.Helper()
	return r.sendTo(textPath, askIDs(conversation, stream, ids...))
}
