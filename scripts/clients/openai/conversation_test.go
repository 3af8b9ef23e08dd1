package openai_test

import (
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

func questions() []string {
	return []string{
		"What did you see last night from the gallery, of the ships, of the weather and of the birds that rest there?",
		"And which of it did you write down?", "Who is going to read it?",
	}
}

// naming is a way to name a conversation.
type naming func(id string, params *openai.ChatCompletionNewParams) []option.RequestOption

func inBody(id string, _ *openai.ChatCompletionNewParams) []option.RequestOption {
	return []option.RequestOption{option.WithJSONSet("conversation_id", id)}
}

// converse asks all questions. The text and the usage of each answer must be those of a lone request.
func converse(t *testing.T, ask way, name naming) (outcomes []string) {
	t.Helper()
	carryover, lone, id := at(t, "CARRYOVER_URL"), at(t, "LONE_URL"), newID()
	params := openai.ChatCompletionNewParams{Model: model, MaxTokens: openai.Int(120), Messages: []openai.ChatCompletionMessageParamUnion{system(id)}}
	for n, question := range questions() {
		params.Messages = append(params.Messages, openai.UserMessage(question))
		named := params
		options := name(id, &named)
		if n == len(questions())-1 {
			options = append(options, last())
		}
		got, want := ask(t, carryover, named, options...), ask(t, lone, params)
		if got.message.Content != want.message.Content || got.finish != want.finish || got.message.Content == "" {
			t.Errorf("turn %d: got %q (%s), want %q (%s)", n+1, got.message.Content, got.finish, want.message.Content, want.finish)
		}
		if g, w := got.usage, want.usage; g.PromptTokens != w.PromptTokens || g.CompletionTokens != w.CompletionTokens || g.TotalTokens != w.TotalTokens {
			t.Errorf("turn %d: got usage %s, want %s", n+1, g.RawJSON(), w.RawJSON())
		}
		outcomes = append(outcomes, got.reuse)
		params.Messages = append(params.Messages, got.message.ToParam())
	}
	return outcomes
}

func TestConversation_TurnsAfterTheFirstHit(t *testing.T) {
	for how, ask := range map[string]way{"whole": whole, "stream": streamed} {
		t.Run(how, func(t *testing.T) {
			warmUp(t, func() []string { return converse(t, ask, inBody) })
			for what, name := range map[string]naming{
				"WithJSONSet": inBody,
				"WithHeader": func(id string, _ *openai.ChatCompletionNewParams) []option.RequestOption {
					return []option.RequestOption{option.WithHeader("X-Conversation-Id", id)}
				},
				"SetExtraFields": func(id string, params *openai.ChatCompletionNewParams) []option.RequestOption {
					params.SetExtraFields(map[string]any{"session_id": id})
					return nil
				},
				"metadata": func(id string, params *openai.ChatCompletionNewParams) []option.RequestOption {
					params.Metadata = shared.Metadata{"conversation_id": id}
					return nil
				},
			} {
				t.Run(what, func(t *testing.T) { wantHits(t, converse(t, ask, name)) })
			}
		})
	}
}

func TestConversation_Off(t *testing.T) {
	for what, options := range map[string][]option.RequestOption{
		"null":   {option.WithJSONSet("conversation_id", nil)},
		"header": {option.WithHeader("X-Conversation-Id", newID()), option.WithHeader("X-KV-Reuse", "off")},
		"task":   {option.WithHeader("X-Conversation-Id", newID()), option.WithHeader("X-Conversation-Task", "tags_generation")},
	} {
		t.Run(what, func(t *testing.T) {
			params := openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("SAY Yes.")}}
			if got := whole(t, at(t, "CARRYOVER_URL"), params, options...); got.reuse != "off" || got.message.Content != "Yes." {
				t.Errorf("got %q, X-KV-Reuse %q", got.message.Content, got.reuse)
			}
		})
	}
}

func TestModels(t *testing.T) {
	var raw *http.Response
	sdk := at(t, "CARRYOVER_URL")
	page, err := sdk.Models.List(t.Context(), option.WithResponseInto(&raw))
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Data) != 1 || page.Data[0].ID != model {
		t.Errorf("got %s, want one model", page.RawJSON())
	}
}
