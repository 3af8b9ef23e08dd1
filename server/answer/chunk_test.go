package answer

import (
	"bytes"
	"io"
	"os"
	"reflect"
	"regexp"
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
	a.Seen, a.passed = true, passed
	return a
}

// stateOf is what an answer has learnt.
func stateOf(a *Reader) map[string]any {
	return map[string]any{
		"odd": a.ineligible, "foreign": a.Foreign, "failed": a.Failed, "ending": a.ending, "done": a.Done, "fault": a.Fault,
		"counted": a.heldFinish, "params": string(a.params), "ends": !a.freshAsOf.IsZero(),
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
		if general.belongs(string(chunk.id)); general.Foreign && !general.passed {
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
	plain := map[string]string{
		"chat":                                chatChunk,
		"text":                                textChunk,
		"text with a usage that is null":      strings.Replace(textChunk, "}]}", `}],"usage":null}`, 1),
		"ids":                                 change(`"token_ids":null`, `"token_ids":[5,6]`),
		"no ids in the list":                  change(`"token_ids":null`, `"token_ids":[]`),
		"ids that are none":                   change(`"token_ids":null`, `"token_ids":["x",[1]]`),
		"log probabilities":                   change(`"logprobs":null`, `"logprobs":{"content":[{"token":"a","logprob":-0.5}]}`),
		"empty text":                          change(` tok\u00e9n\n`, ``),
		"pairs of surrogates":                 change(`\u00e9`, `\ud83d\ude00`),
		"half of a pair":                      change(`\u00e9`, `\ud83d`),
		"invalid UTF-8":                       change(`\u00e9`, "\xff"),
		"members without a value":             change(`"content"`, `"reasoning":null,"tool_calls":null,"content"`),
		"another's id":                        change("leg-7", "leg-8"),
		"usage that is null":                  change(`"model"`, `"usage":null,"model"`),
		"chat of 0.33":                        nullChatChunk,
		"text of 0.33":                        nullTextChunk,
		"ids of 0.33":                         newer(`"token_ids":null`, `"token_ids":[5,6]`),
		"weights that have versions":          strings.Replace(nullTextChunk, `"weight_versions":null`, `"weight_versions":["3",{"a":4}]`, 1),
		"params that are null, in the middle": change(`"model"`, `"kv_transfer_params":null,"model"`),
		"params that are null, with spaces":   newer(`:null}`, ` : null }`),
		"params that are null, twice":         newer(`"model"`, `"kv_transfer_params":null,"model"`),
		"params before some that are null":    newer(`"model"`, `"kv_transfer_params":{"a":1},"model"`),
		"params that are null in the delta":   change(`"content"`, `"kv_transfer_params":null,"content"`),
		"spaces":                              strings.NewReplacer(`:`, ` : `, `,`, ` , `).Replace(chatChunk),
	}
	general := map[string]string{
		"ids twice":                            change(`"token_ids":null`, `"token_ids":[5],"token_ids":[6]`),
		"ids that are no list":                 change(`"token_ids":null`, `"token_ids":5`),
		"reasoning":                            change(`"content"`, `"reasoning":"r","content"`),
		"tool calls":                           change(`"content"`, `"tool_calls":[],"content"`),
		"content twice":                        change(`"content"`, `"content":"x","content"`),
		"delta twice":                          change(`"delta"`, `"delta":{"content":"x"},"delta"`),
		"id twice":                             change(`"id"`, `"id":"chatcmpl-other","id"`),
		"id in escapes":                        change(`chatcmpl`, `chatcmp\u006c`),
		"a name in escapes":                    change(`"logprobs"`, `"finish\u005freason":"stop","logprobs"`),
		"no id":                                change(`"id":"chatcmpl-leg-7",`, ``),
		"finish":                               change(`"finish_reason":null`, `"finish_reason":"stop"`),
		"stop reason":                          change(`"token_ids":null`, `"stop_reason":5`),
		"usage":                                change(`"model"`, `"usage":{"prompt_tokens":1},"model"`),
		"error":                                change(`"model"`, `"error":{"code":500},"model"`),
		"the prompt's ids":                     change(`"model"`, `"prompt_token_ids":[1],"model"`),
		"params":                               change(`"model"`, `"kv_transfer_params":{"a":1},"model"`),
		"finish of 0.33":                       newer(`"finish_reason":null`, `"finish_reason":"stop","weight_versions":null`),
		"params that are null, with an escape": newer(`"kv_t`, `"kv\u005ft`),
		"params behind some that are null":     strings.TrimSuffix(nullChatChunk, "}") + `,"kv_transfer_params":{"a":1}}`,
		"something behind the null":            nullChatChunk + "x",
		"cut off behind the null":              nullChatChunk[:len(nullChatChunk)-1],
		"not JSON before the null":             newer(`"index":0,`, `"index":0,,`),
		"second choice":                        change(`"index":0`, `"index":1`),
		"index that is no integer":             change(`"index":0`, `"index":0.0`),
		"two choices":                          change(`[{`, `[{"index":0},{`),
		"no choice":                            `{"id":"chatcmpl-leg-7","choices":[]}`,
		"a role alone":                         change(`"content":" tok\u00e9n\n"`, `"role":"assistant"`),
		"content that is null":                 change(`" tok\u00e9n\n"`, `null`),
		"something behind it":                  chatChunk + "x",
		"cut off":                              chatChunk[:len(chatChunk)-1],
		"not JSON":                             "hello",
	}
	for want, rows := range map[bool]map[string]string{true: plain, false: general} {
		for name, data := range rows {
			for _, api := range []body.API{body.Chat, body.Text} {
				want := want && (api == body.Text) == strings.Contains(data, "text_completion")
				for _, asks := range []Asks{{}, {IDs: true}, {IDs: true, Hidden: true, Usage: true}} {
					for _, passed := range []bool{true, false} {
						if plain := samePlain(t, answerIDs, []byte(data), api, asks, passed); plain != (want && asks.IDs) {
							t.Errorf("%s, %v: plain: %t, want %t (asked for %+v)", name, api, plain, want, asks)
						}
					}
				}
			}
		}
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

// recording is a stream of vLLM 0.33.
type recording struct {
	file, id string // of the leg
	api      body.API
	ids      bool // each chunk has some
}

func recordings() []recording {
	return []recording{
		{"chat-params", "89b638f54109a1ee", body.Chat, false},
		{"chat-plug-in", "ae9657791516b97a", body.Chat, false},
		{"chat-null", "ba9b7239fc5cb4dd", body.Chat, false},
		{"chat-usage", "81f92c603ca82258", body.Chat, true},
		{"text-params", "b72967bf128eec21", body.Text, false},
	}
}

func (rec recording) stream(t *testing.T) string {
	t.Helper()
	stream, err := os.ReadFile("../../sse/testdata/vllm-0.33-" + rec.file + ".sse")
	if err != nil {
		t.Fatal(err)
	}
	return string(stream)
}

var (
	streamedParams = regexp.MustCompile(`,"kv_transfer_params":(null|\{.*\})\}`)
	streamedIDs    = regexp.MustCompile(`token_ids":\[[0-9,]*\]`)
)

// watch relays a stream to the client of an answer that is watched for this, and returns it, what the client gets, and how many chunks
// were plain.
func (rec recording) watch(t *testing.T, answerIDs *facts.AnswerIDs, mode chunkMode, stream io.Reader) (a *Reader, shown string, plain int) {
	t.Helper()
	a = midway(t, answerIDs, rec.api, mode.asks, false)
	mode.prove(t, a)
	a.Seen = false
	a.leg.RequestID = rec.id
	var out strings.Builder
	relay := sse.New(&out, nil, sse.Config{Strip: ParamsMember, Substance: []string{"choices", "usage", "error"}, Begin: a.Begin, Observe: func(ev sse.Event) sse.Verdict {
		if _, ok := readPlain(ev.Data, rec.api); ok && ev.Member == nil {
			plain++
		}
		return a.Observe(ev)
	}})
	if err := relay.Run(stream); err != nil {
		t.Fatal(err)
	}
	return a, out.String(), plain
}

// Of a stream of vLLM 0.33 a client gets what the engine sent, without the params, and the turn learns what it would of vLLM 0.32, which
// sends no params that are null: however the stream is cut into reads, and whatever it is watched for.
func TestChunk_RecordedStreamsWithNullAreThoseWithout(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	const step = 7 // divides the length of no chunk, so that chunk by chunk each place of one is cut
	for _, rec := range recordings() {
		stream := rec.stream(t)
		older := strings.NewReplacer(`,"kv_transfer_params":null`, "", `,"weight_versions":null`, "").Replace(stream)
		for _, mode := range chunkModes() {
			if mode.asks.IDs != rec.ids && mode.asks.IDs { // an engine that is asked for ids tells them
				continue
			}
			t.Run(rec.file+"/"+mode.name, func(t *testing.T) {
				want := streamedParams.ReplaceAllString(stream, "}")
				if mode.asks.Hidden {
					want = streamedIDs.ReplaceAllString(want, `token_ids":null`)
				}
				learnt, _, _ := rec.watch(t, answerIDs, mode, strings.NewReader(older))
				for at := 0; at < len(stream); at += step {
					a, shown, plain := rec.watch(t, answerIDs, mode, io.MultiReader(strings.NewReader(stream[:at]), strings.NewReader(stream[at:])))
					if shown != want {
						t.Fatalf("cut at %d, relayed\n%s\nwant\n%s", at, shown, want)
					}
					a.heldFinish = bytes.Replace(a.heldFinish, []byte(`,"weight_versions":null`), nil, 1)
					if !reflect.DeepEqual(stateOf(a), stateOf(learnt)) {
						t.Fatalf("cut at %d, learnt\n%+v\nwant\n%+v", at, stateOf(a), stateOf(learnt))
					}
					// All but the role, which may be, the finish, the usage and [DONE].
					if least := strings.Count(stream, `"finish_reason":null`) - strings.Count(stream, `"role"`); plain < least {
						t.Fatalf("cut at %d: %d chunks are plain, want at least %d", at, plain, least)
					}
				}
			})
		}
	}
}
