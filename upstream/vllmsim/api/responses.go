package api

import (
	"context"
	"encoding/json"
	"net/http"

	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/request"
	"carryover/upstream/vllmsim/wire"
)

// The Responses API as vLLM 0.32 and 0.33 have it (vllm/entrypoints/openai/responses), without its store: previous_response_id is never
// known, and background is refused. A request becomes chat messages (request/responses.go), and the output becomes items, in one piece (here)
// or in events (responses_stream.go). The event that ends a stream has the whole response, so params need no plug-in. Structured output and
// logprobs have no effect.
// Recorded cases match byte for byte (testdata/exchanges/vllm-0.32-agents 08 to 13). No recording has a message in a stream, a thought before
// a message, or an empty answer: these follow vLLM's source.

const (
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
)

type responseTurn struct {
	*completion

	asked *request.Responses
}

// readTurn refuses requests that need the store.
func (s *Endpoints) readTurn(req *http.Request) (*request.Responses, *request.Completion, error) {
	asked, err := request.ReadResponses(req)
	if err != nil {
		return nil, nil, err
	}
	if err := s.checkModel(asked.Model); err != nil {
		return nil, nil, err
	}
	if err := asked.CheckStore(); err != nil {
		return nil, nil, err
	}
	r, err := asked.ChatRequest()
	return asked, r, err
}

func (t *responseTurn) respond(ctx context.Context, w http.ResponseWriter) error {
	if err := t.finish(ctx); err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, t.completed(t.items()))
}

// items returns the output of a whole answer (build_response_output_items, responses/utils.py), no items for an answer without text. If the
// limit cut the answer, the last item is incomplete, except a thought, which has no status.
func (t *responseTurn) items() []any {
	items, out := []any{}, t.choices[0].out
	if thought := out.reasoning.String(); thought != "" {
		items = append(items, newReasoningItem(itemID(kindReasoning), nil, &thought))
	}
	if text := out.wholeText(); text != "" {
		status := statusCompleted
		if len(out.calls) == 0 {
			status = t.endStatus()
		}
		items = append(items, newMessageItem(itemID(kindMessage), status, &text))
	}
	for n, call := range out.calls {
		status := statusCompleted
		if n == len(out.calls)-1 {
			status = t.endStatus()
		}
		items = append(items, callItem{Arguments: call.Function.Arguments, CallID: call.ID, Name: call.Function.Name, Type: "function_call", ID: itemID(kindCall), Status: status})
	}
	return items
}

func itemID(kind string) string { return kind + "_" + wire.RandomHex(8) }

// started returns the response of the first two events. Members that are known only at the end are null.
func (t *responseTurn) started() responseObject {
	a := t.asked
	o := responseObject{
		ID: t.id, CreatedAt: t.created, Instructions: a.Instructions, Metadata: a.Metadata, Model: t.endpoints.config().Answered(a.Model), Object: "response",
		Output: []any{}, ParallelToolCalls: a.ParallelToolCalls == nil || *a.ParallelToolCalls, Temperature: floatOr(a.Temperature, 1), ToolChoice: a.ToolChoice,
		Tools: a.Tools, TopP: floatOr(a.TopP, 1), MaxOutputTokens: t.choices[0].engineReq.MaxTokens, MaxToolCalls: a.MaxToolCalls, Reasoning: a.Reasoning,
		ServiceTier: a.ServiceTier, Status: "in_progress", Text: a.Text, Truncation: a.Truncation, User: a.User,
		PresencePenalty: floatOr(a.PresencePenalty, 0), FrequencyPenalty: floatOr(a.FrequencyPenalty, 0),
	}
	if t.endpoints.config().Since033() {
		o.PromptCacheOptions, o.PromptCacheKey = orNull(a.PromptCacheOptions), orNull(a.PromptCacheKey)
		o.PromptCacheKept, o.SafetyIdentifier = orNull(a.PromptCacheRetention), orNull(a.SafetyIdentifier)
	}
	return o
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return wire.Null
	}
	return raw
}

// endStatus returns the status of the last item of an answer. Up to 0.32, an item that the limit cut counts as complete.
func (t *responseTurn) endStatus() string {
	if t.choices[0].finish == "length" && t.endpoints.config().Since033() {
		return statusIncomplete
	}
	return statusCompleted
}

// completed returns the response at the end, even if the limit cut the answer.
func (t *responseTurn) completed(items []any) responseObject {
	o, ch := t.started(), t.choices[0]
	o.Output, o.Status = items, statusCompleted
	if ch.finish == "length" {
		o.Status, o.IncompleteDetails = statusIncomplete, &incompleteDetails{Reason: "max_output_tokens"}
	}
	if !t.asked.Stream || !t.fault.Is(fault.NoUsage) {
		o.Usage = responseUsage(t.usage(), t.thoughts)
	}
	o.KVTransferParams = t.params()
	if t.asked.ResponseMessages {
		// If the prompt came as ids, the answer does not contain its text.
		text := ""
		if !t.given {
			text = t.endpoints.tok.Decode(ch.prompt)
		}
		if !t.fault.Is(fault.NoIDEcho) {
			o.InputMessages = []rawMessage{{Message: text, Tokens: ch.prompt, Type: rawMessageType}}
		}
		o.OutputMessages = []rawMessage{{Message: ch.out.text, Tokens: append([]int32{}, ch.told...), Type: rawMessageType}}
	}
	return o
}

// floatOr returns a number as Python writes a float; if f is nil, the number is absent.
func floatOr(f *float64, absent float64) json.RawMessage {
	if f != nil {
		absent = *f
	}
	return json.RawMessage(wire.PythonFloat(absent))
}
