package answer

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"carryover/sse"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// plainLeg is the id of the leg whose answer is read here.
const plainLeg = "leg-7"

// midway returns an answer that has been begun, of which something has been forwarded if passed.
func midway(tb testing.TB, answerIDs *facts.AnswerIDs, api body.API, asks Asks, passed bool) *Reader {
	tb.Helper()
	leg := &Leg{API: api, RequestID: plainLeg, AnswerIDs: answerIDs, Asks: asks}
	a := &Reader{}
	a.Reset(leg, &told{})
	a.first, a.passed = true, passed
	return a
}

// stateOf is what an answer has learnt.
func stateOf(a *Reader) map[string]any {
	return map[string]any{
		"odd": a.ineligible, "foreign": a.foreign, "failed": a.failed, "ending": a.ending, "done": a.done, "fault": a.fault,
		"counted": a.usageFilter, "params": string(a.params), "ends": !a.freshAsOf.IsZero(),
	}
}

// What is said of a chunk is the same whether it is read as a plain one or in the general way.
func samePlain(t *testing.T, answerIDs *facts.AnswerIDs, data []byte, api body.API, asks Asks, passed bool) (plain bool) {
	t.Helper()
	if bytes.ContainsAny(data, "\r\n") {
		return false
	}
	quick, general := midway(t, answerIDs, api, asks, passed), midway(t, answerIDs, api, asks, passed)
	through := func(observe func(sse.Event) sse.Verdict) (verdict sse.Verdict, out string) {
		var b strings.Builder
		_ = sse.New(&b, nil, sse.Config{Strip: ParamsMember, Observe: func(ev sse.Event) sse.Verdict {
			verdict = observe(ev)
			return verdict
		}}).Run(strings.NewReader("data: " + string(data) + "\n\n")) // what matters of the error is the verdict
		return verdict, b.String()
	}
	verdict, out := through(func(ev sse.Event) sse.Verdict {
		v, ok := quick.plain(ev)
		plain = ok
		return v
	})
	if !plain {
		if untouched := midway(t, answerIDs, api, asks, passed); !reflect.DeepEqual(stateOf(quick), stateOf(untouched)) {
			t.Errorf("%s\nis not plain, and left %+v", data, stateOf(quick))
		}
		return false
	}
	wanted, shown := through(func(ev sse.Event) sse.Verdict {
		v := general.weigh(ev, false)
		chunk, _ := readPlain(ev.Data, api)
		if general.belongs(string(chunk.id)); general.foreign && !general.passed {
			return sse.Stop
		}
		return v
	})
	if verdict != wanted || out != shown {
		t.Errorf("%s\nbecame %v %q, want %v %q", data, verdict, out, wanted, shown)
	}
	if got, want := stateOf(quick), stateOf(general); !reflect.DeepEqual(got, want) {
		t.Errorf("%s\nlearnt %+v\n want  %+v", data, got, want)
	}
	return true
}

// chatChunk and textChunk are chunks as vLLM 0.32 sends them, nullChatChunk and nullTextChunk as 0.33 does.
const (
	chatChunk = `{"id":"chatcmpl-leg-7","object":"chat.completion.chunk","created":1795271341,"model":"m","choices":[{"index":0,"delta":{"content":" tok\u00e9n\n"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`
	textChunk = `{"id":"cmpl-leg-7","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" tok\u00e9n\n","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}`

	nullChatChunk = `{"id":"chatcmpl-leg-7","object":"chat.completion.chunk","created":1795271341,"model":"m","choices":[{"index":0,"delta":{"content":" tok\u00e9n\n"},"logprobs":null,"finish_reason":null,"token_ids":null}],"kv_transfer_params":null}`
	nullTextChunk = `{"id":"cmpl-leg-7","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" tok\u00e9n\n","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null,"weight_versions":null}],"kv_transfer_params":null}`
)

func TestChunk_PlainOnesAreReadAsInTheGeneralWay(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	change := func(from, to string) string { return strings.Replace(chatChunk, from, to, 1) }
	newer := func(from, to string) string { return strings.Replace(nullChatChunk, from, to, 1) }
	for _, tc := range []struct {
		name, data string
		api        body.API
		plain      bool
	}{
		{"chat", chatChunk, body.Chat, true},
		{"text", textChunk, body.Text, true},
		{"text with a usage that is null", strings.Replace(textChunk, "}]}", `}],"usage":null}`, 1), body.Text, true},
		{"chat's at the other endpoint", chatChunk, body.Text, false},
		{"text's at the other endpoint", textChunk, body.Chat, false},
		{"ids", change(`"token_ids":null`, `"token_ids":[5,6]`), body.Chat, true},
		{"no ids in the list", change(`"token_ids":null`, `"token_ids":[]`), body.Chat, true},
		{"ids that are none", change(`"token_ids":null`, `"token_ids":["x",[1]]`), body.Chat, true},
		{"ids twice", change(`"token_ids":null`, `"token_ids":[5],"token_ids":[6]`), body.Chat, false},
		{"ids that are no list", change(`"token_ids":null`, `"token_ids":5`), body.Chat, false},
		{"log probabilities", change(`"logprobs":null`, `"logprobs":{"content":[{"token":"a","logprob":-0.5}]}`), body.Chat, true},
		{"empty text", change(` tok\u00e9n\n`, ``), body.Chat, true},
		{"pairs of surrogates", change(`\u00e9`, `\ud83d\ude00`), body.Chat, true},
		{"half of a pair", change(`\u00e9`, `\ud83d`), body.Chat, true},
		{"invalid UTF-8", change(`\u00e9`, "\xff"), body.Chat, true},
		{"members without a value", change(`"content"`, `"reasoning":null,"tool_calls":null,"content"`), body.Chat, true},
		{"reasoning", change(`"content"`, `"reasoning":"r","content"`), body.Chat, false},
		{"tool calls", change(`"content"`, `"tool_calls":[],"content"`), body.Chat, false},
		{"content twice", change(`"content"`, `"content":"x","content"`), body.Chat, false},
		{"delta twice", change(`"delta"`, `"delta":{"content":"x"},"delta"`), body.Chat, false},
		{"id twice", change(`"id"`, `"id":"chatcmpl-other","id"`), body.Chat, false},
		{"id in escapes", change(`chatcmpl`, `chatcmp\u006c`), body.Chat, false},
		{"a name in escapes", change(`"logprobs"`, `"finish\u005freason":"stop","logprobs"`), body.Chat, false},
		{"another's id", change("leg-7", "leg-8"), body.Chat, true},
		{"no id", change(`"id":"chatcmpl-leg-7",`, ``), body.Chat, false},
		{"finish", change(`"finish_reason":null`, `"finish_reason":"stop"`), body.Chat, false},
		{"stop reason", change(`"token_ids":null`, `"stop_reason":5`), body.Chat, false},
		{"usage", change(`"model"`, `"usage":{"prompt_tokens":1},"model"`), body.Chat, false},
		{"usage that is null", change(`"model"`, `"usage":null,"model"`), body.Chat, true},
		{"error", change(`"model"`, `"error":{"code":500},"model"`), body.Chat, false},
		{"the prompt's ids", change(`"model"`, `"prompt_token_ids":[1],"model"`), body.Chat, false},
		{"params", change(`"model"`, `"kv_transfer_params":{"a":1},"model"`), body.Chat, false},
		{"chat of 0.33", nullChatChunk, body.Chat, true},
		{"text of 0.33", nullTextChunk, body.Text, true},
		{"ids of 0.33", newer(`"token_ids":null`, `"token_ids":[5,6]`), body.Chat, true},
		{"finish of 0.33", newer(`"finish_reason":null`, `"finish_reason":"stop","weight_versions":null`), body.Chat, false},
		{"weights that have versions", strings.Replace(nullTextChunk, `"weight_versions":null`, `"weight_versions":["3",{"a":4}]`, 1), body.Text, true},
		{"params that are null, in the middle", change(`"model"`, `"kv_transfer_params":null,"model"`), body.Chat, true},
		{"params that are null, with spaces", newer(`:null}`, ` : null }`), body.Chat, true},
		{"params that are null, with an escape", newer(`"kv_t`, `"kv\u005ft`), body.Chat, false},
		{"params that are null, twice", newer(`"model"`, `"kv_transfer_params":null,"model"`), body.Chat, true},
		{"params before some that are null", newer(`"model"`, `"kv_transfer_params":{"a":1},"model"`), body.Chat, true},
		{"params behind some that are null", strings.TrimSuffix(nullChatChunk, "}") + `,"kv_transfer_params":{"a":1}}`, body.Chat, false},
		{"params that are null in the delta", change(`"content"`, `"kv_transfer_params":null,"content"`), body.Chat, true},
		{"something behind the null", nullChatChunk + "x", body.Chat, false},
		{"cut off behind the null", nullChatChunk[:len(nullChatChunk)-1], body.Chat, false},
		{"not JSON before the null", newer(`"index":0,`, `"index":0,,`), body.Chat, false},
		{"second choice", change(`"index":0`, `"index":1`), body.Chat, false},
		{"index that is no integer", change(`"index":0`, `"index":0.0`), body.Chat, false},
		{"two choices", change(`[{`, `[{"index":0},{`), body.Chat, false},
		{"no choice", `{"id":"chatcmpl-leg-7","choices":[]}`, body.Chat, false},
		{"a role alone", change(`"content":" tok\u00e9n\n"`, `"role":"assistant"`), body.Chat, false},
		{"content that is null", change(`" tok\u00e9n\n"`, `null`), body.Chat, false},
		{"spaces", strings.NewReplacer(`:`, ` : `, `,`, ` , `).Replace(chatChunk), body.Chat, true},
		{"something behind it", chatChunk + "x", body.Chat, false},
		{"cut off", chatChunk[:len(chatChunk)-1], body.Chat, false},
		{"not JSON", "hello", body.Chat, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, asks := range []Asks{{}, {IDs: true}, {IDs: true, Hidden: true, Usage: true}} {
				for _, passed := range []bool{true, false} {
					if plain, want := samePlain(t, answerIDs, []byte(tc.data), tc.api, asks, passed), tc.plain && asks.IDs; plain != want {
						t.Errorf("plain: %t, want %t (asked for %+v)", plain, want, asks)
					}
				}
			}
		})
	}
}

func FuzzChunk(f *testing.F) {
	f.Add(chatChunk, false, byte(0))
	f.Add(strings.Replace(chatChunk, `"token_ids":null`, `"token_ids":[5,6]`, 1), false, byte(7))
	f.Add(nullChatChunk, false, byte(15))
	f.Add(strings.Replace(nullTextChunk, `"token_ids":null`, `"token_ids":[5,6]`, 1), true, byte(7))
	f.Add(`{"id":"cmpl-leg-7","choices":[{"index":0,"text":"\ud83d\ude00 a","finish_reason":null,"stop_reason":null,"token_ids":[1]}],"usage":null}`, true, byte(3))
	answerIDs := &facts.AnswerIDs{}
	f.Fuzz(func(t *testing.T, data string, text bool, how byte) {
		api := body.Chat
		if text {
			api = body.Text
		}
		samePlain(t, answerIDs, []byte(data), api, Asks{IDs: how&1 != 0, Hidden: how&2 != 0, Usage: how&4 != 0}, how&8 != 0)
	})
}
