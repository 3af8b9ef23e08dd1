package server_test

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"strings"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Scripted engines read prompts so: a message of the user has askedIDs tokens, any other saidIDs, tools have as many, and a text a token for
// each byte. The answer of decode has saidIDs tokens, those of the message Hello world.
const (
	askedIDs = 190
	saidIDs  = 10
)

// helloWorld is the message of scripted answers that call no tool.
const helloWorld = `"Hello world"`

// idsOf are n ids that only equal texts have.
func idsOf(n int, text string) []int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return count(int(h.Sum32()%10_000_000)*200, n)
}

// promptOf is the prompt of a request: the ids that it names, or those that its text is rendered to.
func promptOf(raw string) (ids []int) {
	var request struct {
		Prompt   json.RawMessage
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools  json.RawMessage
		Params struct {
			IDs []int `json:"prompt_token_ids"`
		} `json:"kv_transfer_params"`
	}
	_ = json.Unmarshal([]byte(raw), &request) // a leg that is no JSON fails elsewhere
	var text string
	switch {
	case request.Params.IDs != nil:
		return request.Params.IDs
	case len(request.Prompt) > 0 && json.Unmarshal(request.Prompt, &ids) == nil:
		return ids
	case json.Unmarshal(request.Prompt, &text) == nil:
		for i, part := range strings.Split(text, "Hello world") {
			if i > 0 {
				ids = append(ids, outputIDs()...)
			}
			for _, b := range []byte(part) {
				ids = append(ids, int(b))
			}
		}
		return ids
	}
	if len(request.Tools) > 0 {
		ids = idsOf(saidIDs, string(request.Tools))
	}
	for _, m := range request.Messages {
		n := saidIDs
		if m.Role == "user" {
			n = askedIDs
		}
		if said := string(m.Content); m.Role == "assistant" && (said == helloWorld || said == "null") {
			ids = append(ids, outputIDs()...)
			continue
		}
		ids = append(ids, idsOf(n, m.Role+string(m.Content))...)
	}
	return ids
}

func (l leg) prompt() []int { return promptOf(l.body) }

// asksIDs and asksUsage say what the proxy asks of a leg.
func (l leg) asksIDs() bool   { return strings.Contains(l.body, `"return_token_ids":true`) }
func (l leg) asksUsage() bool { return strings.Contains(l.body, `"include_usage":true`) }

// chatUsage counts a leg's prompt and an answer.
func chatUsage(l leg) string {
	return jsonOf(map[string]int{"prompt_tokens": len(l.prompt()), "completion_tokens": saidIDs})
}

// legWriter writes the answer to a leg of a chat, and adds what the leg asks for and its script leaves out: the ids of prefill's prompt, and
// the usage of a stream.
type legWriter struct {
	http.ResponseWriter
	leg     leg
	role    upstream.Role
	counted bool
}

// Unwrap is for http.ResponseController.
func (w *legWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// whole completes a whole answer.
func (w *legWriter) whole(answer string) string {
	if w.role != upstream.RolePrefill || !strings.HasPrefix(w.leg.uri, chatPath) || !w.leg.asksIDs() || strings.Contains(answer, "prompt_token_ids") {
		return answer
	}
	return withIDs(w.leg, answer)
}

// withIDs adds the ids of its prompt to prefill's answer to a chat.
func withIDs(l leg, answer string) string {
	return strings.Replace(answer, `{"id"`, `{"prompt_token_ids":`+list(l.prompt())+`,"id"`, 1)
}

// event completes a stream: its usage comes before its end.
func (w *legWriter) event(event string) string {
	w.counted = w.counted || strings.Contains(event, `"usage":{`)
	if event != "[DONE]" || w.counted || !w.leg.asksUsage() || !strings.HasPrefix(w.leg.uri, chatPath) {
		return frames(event)
	}
	return frames(append(countedIn(w.leg, "chatcmpl-"), event)...)
}

// countedIn is the event with the usage of a stream, if the leg asks for it.
func countedIn(l leg, prefix string) []string {
	if !l.asksUsage() {
		return nil
	}
	return []string{`{"id":"` + prefix + l.id() + `","object":"chat.completion.chunk","choices":[],"system_fingerprint":"f","usage":` + chatUsage(l) + `}`}
}

// refusesProbe answers the question whether an engine uses the ids that it is sent.
func (e *engine) refusesProbe(w http.ResponseWriter, body string) bool {
	if e.idless || !strings.Contains(body, `"prompt_token_ids":[1,-1]`) {
		return false
	}
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write([]byte(`{"error":{"message":"x","type":"BadRequestError","param":"kv_transfer_params.prompt_token_ids","code":400}}`))
	return true
}

// learnShapes has the server know of each prefill instance that /tokenize gives what it renders, for the requests of these tests.
func learnShapes(ctx context.Context, deps server.Deps) {
	for _, engine := range deps.Fleet.Engines(upstream.RolePrefill) {
		for _, raw := range []string{ask("c", true, "q"), ask("c", true, history(2)...), afterCall} {
			req, err := body.ParseRequest(body.Chat, []byte(raw))
			if err != nil {
				continue
			}
			shape, _ := req.FeatureSet()
			for _, model := range []string{"m", "other", "n"} {
				engine.Current(ctx).Parity.Learn("", model, shape, true)
			}
		}
	}
}
