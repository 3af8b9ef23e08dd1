package openai_test

import (
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// converseWithTool asks for a call, gives the tool's result, and asks for more.
func converseWithTool(t *testing.T, ask way) (outcomes []string) {
	t.Helper()
	carryover, lone, id := at(t, "CARRYOVER_URL"), at(t, "LONE_URL"), newID()
	params := openai.ChatCompletionNewParams{
		Model: model, MaxTokens: openai.Int(120),
		Messages: []openai.ChatCompletionMessageParamUnion{system(id), openai.UserMessage(`CALL look_up {"place": "Fastnet Rock", "days": 3}`)},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: "look_up", Description: openai.String("Looks up the weather of a place."),
			Parameters: openai.FunctionParameters{
				"type": "object", "required": []string{"place"},
				"properties": map[string]any{"place": map[string]string{"type": "string"}, "days": map[string]string{"type": "integer"}},
			},
		})},
	}
	for n := range 3 {
		options := []option.RequestOption{option.WithJSONSet("conversation_id", id)}
		if n == 2 {
			options = append(options, last())
		}
		got, want := ask(t, carryover, params, options...), ask(t, lone, params)
		if got.message.Content != want.message.Content || got.finish != want.finish {
			t.Errorf("turn %d: got %q (%s), want %q (%s)", n+1, got.message.Content, got.finish, want.message.Content, want.finish)
		}
		outcomes = append(outcomes, got.reuse)
		params.Messages = append(params.Messages, got.message.ToParam())
		if n > 0 {
			params.Messages = append(params.Messages, openai.UserMessage("And what follows from it?"))
			continue
		}
		if len(got.message.ToolCalls) != 1 || got.finish != "tool_calls" {
			t.Fatalf("got %s (%s), want one tool call", got.message.RawJSON(), got.finish)
		}
		call := got.message.ToolCalls[0]
		if call.Function.Name != "look_up" || call.Function.Arguments != want.message.ToolCalls[0].Function.Arguments || call.Function.Arguments == "" {
			t.Errorf("got call %+v, want %+v", call.Function, want.message.ToolCalls[0].Function)
		}
		params.Messages = append(params.Messages, openai.ToolMessage("Gales from the south-west, and rain.", call.ID))
	}
	return outcomes
}

func TestTools_CallAndResultHit(t *testing.T) {
	for how, ask := range map[string]way{"whole": whole, "stream": streamed} {
		t.Run(how, func(t *testing.T) {
			warmUp(t, func() []string { return converseWithTool(t, ask) })
			wantHits(t, converseWithTool(t, ask))
		})
	}
}
