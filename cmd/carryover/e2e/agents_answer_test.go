package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/tidwall/gjson"
)

// The endpoints that agents speak to.
const (
	pathMessages  = "/v1/messages"
	pathResponses = "/v1/responses"
)

// agentAnswer is an answer of either API as an agent has put it together.
type agentAnswer struct {
	*answered
	parts  []object // blocks of a message, or the output items of a response
	stop   string   // stop_reason, or the status
	over   bool     // its last event has come, or it came whole
	prompt int      // tokens of the prompt
}

// askAgent sends a request of one of the two APIs and reads its answer as their SDKs do.
func (r *rig) askAgent(ctx context.Context, path string, header http.Header, body object) (*agentAnswer, error) {
	a := &agentAnswer{}
	var failed error
	answer, err := r.post(ctx, path, header, encode(body), func(_ int, data []byte) {
		if err := a.event(data); err != nil && failed == nil {
			failed = err
		}
	})
	if a.answered = answer; err != nil || failed != nil {
		return a, fmt.Errorf("%s: %w", path, errors.Join(err, failed))
	}
	if answer.status == http.StatusOK && answer.ends == endsWhole {
		a.whole(answer.raw)
	}
	return a, nil
}

// whole reads an answer that came in one piece.
func (a *agentAnswer) whole(raw []byte) {
	all := gjson.ParseBytes(raw)
	switch {
	case all.Get("object").String() == "response":
		a.response(all)
	case all.Get("type").String() == "message":
		a.parts, a.stop, a.prompt, a.over = objects(all.Get("content")), all.Get("stop_reason").String(), messagePrompt(all.Get("usage")), true
	}
}

// response reads a whole response.
func (a *agentAnswer) response(r gjson.Result) {
	a.parts, a.stop, a.prompt, a.over = objects(r.Get("output")), r.Get("status").String(), int(r.Get("usage.input_tokens").Int()), true
}

func messagePrompt(usage gjson.Result) int {
	return int(usage.Get("input_tokens").Int() + usage.Get("cache_read_input_tokens").Int() + usage.Get("cache_creation_input_tokens").Int())
}

func objects(list gjson.Result) []object {
	var all []object
	if json.Unmarshal([]byte(list.Raw), &all) != nil {
		return nil
	}
	return all
}

// event takes in one event. The error is of one that is out of its order.
func (a *agentAnswer) event(data []byte) error {
	e := gjson.ParseBytes(data)
	if a.over {
		return fmt.Errorf("an event behind the last: %.200s", data)
	}
	switch e.Get("type").String() {
	case "message_start":
		a.prompt = int(e.Get("message.usage.input_tokens").Int())
	case "content_block_start":
		if int(e.Get("index").Int()) != len(a.parts) {
			return fmt.Errorf("block %s behind %d blocks", e.Get("index").Raw, len(a.parts))
		}
		block := object{}
		if err := json.Unmarshal([]byte(e.Get("content_block").Raw), &block); err != nil {
			return err
		}
		if block["type"] == "tool_use" {
			block["input"] = ""
		}
		a.parts = append(a.parts, block)
	case "content_block_delta":
		if len(a.parts) == 0 {
			return fmt.Errorf("a delta of no block: %.200s", data)
		}
		block := a.parts[len(a.parts)-1]
		for _, part := range [][2]string{{"text", "text"}, {"thinking", "thinking"}, {"input", "partial_json"}, {"signature", "signature"}} {
			if more := e.Get("delta." + part[1]); more.Exists() {
				had, _ := block[part[0]].(string)
				block[part[0]] = had + more.String()
			}
		}
	case "content_block_stop":
		// What a call's pieces of JSON have come to. One that the limit has cut stays a text.
		if len(a.parts) == 0 {
			return fmt.Errorf("the end of no block")
		}
		block := a.parts[len(a.parts)-1]
		var input any
		if text, called := block["input"].(string); called && block["type"] == "tool_use" && json.Unmarshal([]byte(text), &input) == nil {
			block["input"] = input
		}
	case "message_delta":
		a.stop, a.prompt = e.Get("delta.stop_reason").String(), messagePrompt(e.Get("usage"))
	case "message_stop":
		a.over = true
	case "response.completed", "response.incomplete":
		a.response(e.Get("response"))
	}
	return nil
}

// said is what an answer says, without the names that are different in every answer.
func (a *agentAnswer) said() string {
	var parts []object
	for _, part := range a.parts {
		plain := maps.Clone(part)
		for _, name := range []string{"id", "call_id", "signature"} {
			delete(plain, name)
		}
		parts = append(parts, plain)
	}
	return a.stop + " " + string(encode(parts))
}

// sameSaid compares what two answers say.
func sameSaid(got, want *agentAnswer) error {
	switch {
	case got.status != http.StatusOK || !got.over:
		return fmt.Errorf("status %d, over %v, ends %s: %.300s", got.status, got.over, got.ends, got.raw)
	case got.said() != want.said():
		return fmt.Errorf("said\n%.600s\nwant\n%.600s", got.said(), want.said())
	case got.prompt != want.prompt:
		return fmt.Errorf("a prompt of %d tokens, want %d", got.prompt, want.prompt)
	}
	return nil
}
