package openai_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/tidwall/gjson"
)

func asked() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{system("1"), openai.UserMessage("What did you see last night?")},
	}
}

func TestErrors_AreTheSDKs(t *testing.T) {
	type told struct {
		status            int
		kind, param, code string
	}
	for what, row := range map[string]struct {
		variable string
		change   func(*openai.ChatCompletionNewParams)
		option   option.RequestOption
		want     told
		message  string
	}{
		"bad request": {
			option: option.WithJSONSet("conversation_id", true),
			want:   told{400, "invalid_request_error", "conversation_id", "invalid_conversation_id"}, message: "conversation_id must be a string",
		},
		"too long for the engine": {
			change: func(p *openai.ChatCompletionNewParams) {
				p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("And then? ", 15_000))}
			},
			want: told{400, "BadRequestError", "input_tokens", "invalid_request"}, message: "context length",
		},
		"unknown model": {
			change: func(p *openai.ChatCompletionNewParams) { p.Model = "another" },
			want:   told{404, "NotFoundError", "model", "model_not_found"}, message: "does not exist",
		},
		"engines gone": {variable: "NOWHERE_URL", want: told{503, "server_error", "", "decode_unavailable"}, message: "No decode engine is available."},
	} {
		for how, ask := range map[string]func(openai.Client, openai.ChatCompletionNewParams, ...option.RequestOption) error{
			"whole": func(sdk openai.Client, p openai.ChatCompletionNewParams, o ...option.RequestOption) error {
				_, err := sdk.Chat.Completions.New(t.Context(), p, o...)
				return err
			},
			"stream": func(sdk openai.Client, p openai.ChatCompletionNewParams, o ...option.RequestOption) error {
				stream := sdk.Chat.Completions.NewStreaming(t.Context(), p, o...)
				defer func() { _ = stream.Close() }()
				stream.Next()
				return stream.Err()
			},
		} {
			t.Run(what+"/"+how, func(t *testing.T) {
				params, id := asked(), newID()
				if row.change != nil {
					row.change(&params)
				}
				options := []option.RequestOption{option.WithHeader("X-Request-Id", id)}
				if row.option != nil {
					options = append(options, row.option)
				}
				if row.variable == "" {
					row.variable = "CARRYOVER_URL"
				}
				var refused *openai.Error
				if err := ask(at(t, row.variable), params, options...); !errors.As(err, &refused) {
					t.Fatalf("got %v, want the SDK's error", err)
				}
				if got := (told{refused.StatusCode, refused.Type, refused.Param, refused.Code}); got != row.want || !strings.Contains(refused.Message, row.message) {
					t.Errorf("got %+v %q, want %+v %q", got, refused.Message, row.want, row.message)
				}
				if got := refused.Response.Header.Get("X-Request-Id"); got != id {
					t.Errorf("got request id %q, want %q", got, id)
				}
			})
		}
	}
}

// What can be tried again says so, and a later try of the SDK succeeds.
func TestErrors_SDKTriesAgain(t *testing.T) {
	for url := range strings.FieldsSeq(address(t, "PREFILL_URLS")) {
		fault(t, url, `{"kind":"status","route":"/v1/chat","status":429,"retry_after":"0","count":1}`)
	}
	if got := whole(t, at(t, "CARRYOVER_URL"), asked(), option.WithMaxRetries(2)); got.message.Content == "" {
		t.Error("got no answer")
	}
}

func TestErrors_StreamThatBreaks(t *testing.T) {
	fault(t, address(t, "DECODE_URL"), `{"kind":"die_mid_event","route":"/v1/chat","events":5,"count":1}`)
	sdk, seen := at(t, "CARRYOVER_URL"), 0
	stream := sdk.Chat.Completions.NewStreaming(t.Context(), asked())
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		seen++
	}
	var broken *ssestream.StreamError
	if !errors.As(stream.Err(), &broken) || gjson.GetBytes(broken.Event.Data, "error.code").String() != "decode_failed" || seen < 2 {
		t.Errorf("got %v after %d events, want decode_failed after some", stream.Err(), seen)
	}
}

// A client that leaves in the middle: the engines stop, and the conversation goes on.
func TestCancellation_NextTurnWorks(t *testing.T) {
	for how, leave := range map[string]func(*ssestream.Stream[openai.ChatCompletionChunk], context.CancelFunc){
		"closed":   func(s *ssestream.Stream[openai.ChatCompletionChunk], _ context.CancelFunc) { _ = s.Close() },
		"canceled": func(_ *ssestream.Stream[openai.ChatCompletionChunk], cancel context.CancelFunc) { cancel() },
	} {
		t.Run(how, func(t *testing.T) {
			before, conversation, carryover := decodeStats(t), option.WithJSONSet("conversation_id", newID()), at(t, "CARRYOVER_URL")
			fault(t, address(t, "DECODE_URL"), `{"kind":"slow_stream","route":"/v1/chat","delay":50000000,"count":1}`)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream := carryover.Chat.Completions.NewStreaming(ctx, asked(), conversation)
			for range 3 {
				if !stream.Next() {
					t.Fatalf("the stream ended early: %v", stream.Err())
				}
			}
			leave(stream, cancel)
			until(t, "decode has stopped", func() bool {
				now := decodeStats(t)
				return now.Aborts > before.Aborts && now.Running == 0
			})
			got, want := whole(t, carryover, asked(), conversation, last()), whole(t, at(t, "LONE_URL"), asked())
			if got.message.Content != want.message.Content {
				t.Errorf("got %q, want %q", got.message.Content, want.message.Content)
			}
		})
	}
}
