package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

var cachedCases = []struct {
	name, in, want string
	api            body.API
	tokens         int
}{
	{"absent", `{"usage":{"prompt_tokens":9,"total_tokens":12}}`, `{"usage":{"prompt_tokens":9,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":8}}}`, body.Chat, 8},
	{"null", `{"usage":{"prompt_tokens":9,"prompt_tokens_details":null,"completion_tokens_details":null}}`, `{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":null}}`, body.Chat, 8},
	{"decode's", `{"usage": {"prompt_tokens_details": {"cached_tokens": 303, "created_cache_tokens": 0}, "prompt_tokens": 303}}`, `{"usage": {"prompt_tokens_details": {"cached_tokens": 128, "created_cache_tokens": 0}, "prompt_tokens": 303}}`, body.Chat, 128},
	{"null inside", `{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":null}}}`, `{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}}`, body.Text, 0},
	{"empty details", `{"usage":{"prompt_tokens":9,"prompt_tokens_details":{}}}`, `{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}}`, body.Text, 0},
	{"other details", `{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"audio_tokens":0 } }}`, `{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"audio_tokens":0 ,"cached_tokens":8} }}`, body.Chat, 8},
	{"the same", `{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}`, "", body.Chat, 8},
	{"never more than the prompt", `{"usage":{"prompt_tokens":9}}`, `{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":9}}}`, body.Chat, 4000},
	{"escaped name", `{"us\u0061ge":{"prompt_tokens":9,"prompt_tokens_details":{"cached\u005ftokens":1}}}`, `{"us\u0061ge":{"prompt_tokens":9,"prompt_tokens_details":{"cached\u005ftokens":8}}}`, body.Chat, 8},
	{"the last of two", `{"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":9}}`, `{"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}`, body.Chat, 8},
	{"no usage", `{"choices":[]}`, "", body.Chat, 8},
	{"null usage", `{"usage":null}`, "", body.Chat, 8},
	{"empty usage", `{"usage":{}}`, "", body.Chat, 8},
	{"deeper down", `{"a":{"usage":{"prompt_tokens":9}},"usage":null}`, "", body.Chat, 8},
	{"no count", `{"usage":{"prompt_tokens":"9"}}`, "", body.Chat, 8},
	{"a fraction", `{"usage":{"prompt_tokens":9.5}}`, "", body.Chat, 8},
	{"strange details", `{"usage":{"prompt_tokens":9,"prompt_tokens_details":[1]}}`, "", body.Chat, 8},
	{"responses", `{"usage":{"input_tokens":303,"input_tokens_details":{"cached_tokens":302,"cached_tokens_per_turn":[]},"output_tokens":4}}`, `{"usage":{"input_tokens":303,"input_tokens_details":{"cached_tokens":128,"cached_tokens_per_turn":[]},"output_tokens":4}}`, body.Responses, 128},
	{"responses without", `{"usage":{"input_tokens":303,"output_tokens":4}}`, `{"usage":{"input_tokens":303,"output_tokens":4,"input_tokens_details":{"cached_tokens":128}}}`, body.Responses, 128},
	{"messages", `{"usage":{"input_tokens":15,"output_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":288}}`, `{"usage":{"input_tokens":175,"output_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":128}}`, body.Messages, 128},
	{"messages, read first", `{"usage":{"cache_read_input_tokens":288,"input_tokens":15}}`, `{"usage":{"cache_read_input_tokens":128,"input_tokens":175}}`, body.Messages, 128},
	{"messages, without", `{"usage":{"input_tokens":303,"output_tokens":0}}`, `{"usage":{"input_tokens":175,"output_tokens":0,"cache_read_input_tokens":128}}`, body.Messages, 128},
	{"messages, null", `{"usage":{"input_tokens":303,"cache_creation_input_tokens":null,"cache_read_input_tokens":null}}`, `{"usage":{"input_tokens":175,"cache_creation_input_tokens":null,"cache_read_input_tokens":128}}`, body.Messages, 128},
	{"messages, created", `{"usage":{"input_tokens":3,"cache_creation_input_tokens":200,"cache_read_input_tokens":100}}`, `{"usage":{"input_tokens":0,"cache_creation_input_tokens":200,"cache_read_input_tokens":103}}`, body.Messages, 303},
	{"messages, nothing cached", `{"usage":{"input_tokens":15,"cache_read_input_tokens":288}}`, `{"usage":{"input_tokens":303,"cache_read_input_tokens":0}}`, body.Messages, 0},
	{"messages, no input", `{"usage":{"output_tokens":4}}`, "", body.Messages, 128},
}

func TestCachedTokens_ChangesTheNumberAndNothingElse(t *testing.T) {
	for _, tc := range cachedCases {
		t.Run(tc.name, func(t *testing.T) {
			want := tc.want
			if want == "" {
				want = tc.in
			}
			if got := string(edit(CachedTokens{true, tc.tokens}, tc.api, []byte(tc.in))); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got := string(edit(CachedTokens{false, tc.tokens}, tc.api, []byte(tc.in))); got != tc.in {
				t.Errorf("prefill has not told, and yet: %s", got)
			}
		})
	}
}

// untouched reads an answer as most parsers do, without what [CachedTokens] may change: of Messages the sum of two counts stays.
func untouched(answer []byte) (object map[string]any, ok bool) {
	ok = json.Unmarshal(answer, &object) == nil
	usage, _ := object["usage"].(map[string]any)
	if input, counted := usage["input_tokens"].(float64); counted {
		read, _ := usage["cache_read_input_tokens"].(float64)
		usage["input_tokens"] = input + read
		delete(usage, "cache_read_input_tokens")
	}
	for _, name := range []string{"prompt_tokens_details", "input_tokens_details"} {
		if inner, is := usage[name].(map[string]any); is {
			if delete(inner, "cached_tokens"); len(inner) == 0 {
				delete(usage, name)
			}
		} else if usage[name] == nil {
			delete(usage, name)
		}
	}
	return object, ok
}

func FuzzCachedTokens(f *testing.F) {
	for _, tc := range cachedCases {
		f.Add([]byte(tc.in), int(tc.api), tc.tokens)
	}
	f.Fuzz(func(t *testing.T, data []byte, which, tokens int) {
		api := []body.API{body.Chat, body.Text, body.Messages, body.Responses}[uint(which)%4]
		want, ok := untouched(data)
		if tokens < 0 || !rawjson.Valid(data) || !ok {
			return
		}
		got := edit(CachedTokens{true, tokens}, api, bytes.Clone(data))
		if object, ok := untouched(got); !ok || !reflect.DeepEqual(object, want) {
			t.Errorf("%q\nbecomes %q", data, got)
		}
		if again := edit(CachedTokens{true, tokens}, api, got); !bytes.Equal(again, got) {
			t.Errorf("%q is changed again into %q", got, again)
		}
	})
}

// relayTold relays a stream whose prefill has told a number of cached tokens.
func relayTold(tb testing.TB, leg Leg, stream io.Reader) string {
	tb.Helper()
	var out strings.Builder
	a := &Reader{}
	leg.AnswerIDs, leg.Arrived = &facts.AnswerIDs{}, time.Now()
	a.Reset(&leg, &told{})
	if err := sse.New(&out, nil, a.Relay()).Run(stream); err != nil {
		tb.Fatal(err)
	}
	return out.String()
}

func TestCachedTokens_InRecordedStreams(t *testing.T) {
	for _, tc := range []struct {
		name, leg string
		api       body.API
		changes   []string // what the recording has, once each, and what the client gets
	}{
		{"04-messages-decode-stream-params-in-message-delta", "", body.Messages, []string{
			`{"input_tokens":158,"output_tokens":0}`, `{"input_tokens":30,"output_tokens":0,"cache_read_input_tokens":128}`,
			`"input_tokens":158,"output_tokens":40,"cache_creation_input_tokens":0,"cache_read_input_tokens":0`,
			`"input_tokens":30,"output_tokens":40,"cache_creation_input_tokens":0,"cache_read_input_tokens":128`,
		}},
		{"09-responses-decode-stream", "", body.Responses, []string{
			`"input_tokens":169,"input_tokens_details":{"cached_tokens":0,`, `"input_tokens":169,"input_tokens_details":{"cached_tokens":128,`,
		}},
	} {
		recording := agentRecording(t, tc.name)
		want := relayTold(t, Leg{API: tc.api}, strings.NewReader(recording))
		for i := 0; i < len(tc.changes); i += 2 {
			if strings.Count(want, tc.changes[i]) != 1 {
				t.Fatalf("%s: the recording has %q not once:\n%s", tc.name, tc.changes[i], want)
			}
			want = strings.Replace(want, tc.changes[i], tc.changes[i+1], 1)
		}
		for split, from := range agentSplits(recording) {
			if got := relayTold(t, Leg{API: tc.api, Cached: CachedTokens{true, 128}}, from); got != want {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", tc.name, split, got, want)
			}
		}
	}
}

// A stream of the completion endpoints, with the usage in each event, or in the last one.
func TestCachedTokens_InStreamsOfCompletions(t *testing.T) {
	const running = `data: {"id":"chatcmpl-x","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":9,"total_tokens":10,"completion_tokens":1}}` + "\n\n"
	const plain = `data: {"id":"chatcmpl-x","choices":[{"index":0,"delta":{"content":"the \"usage\":{"},"finish_reason":null}]}` + "\n\n"
	const last = `data: {"id":"chatcmpl-x","choices":[],"usage":{"prompt_tokens":9,"total_tokens":10,"completion_tokens":1}}` + "\n\n" + "data: [DONE]\n\n"
	told := strings.NewReplacer(`"completion_tokens":1}`, `"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}`)
	for name, stream := range map[string]string{"in each event": running + plain + running + last, "in the last": plain + plain + last, "split lines": plain + strings.Replace(last, `,"usage"`, ",\ndata: \"usage\"", 1)} {
		for split, from := range agentSplits(stream) {
			if got, want := relayTold(t, Leg{API: body.Chat, RequestID: "x", Cached: CachedTokens{true, 8}}, from), told.Replace(stream); got != want {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", name, split, got, want)
			}
		}
	}
}

// edit returns a whole answer that tells prefill's number.
func edit(c CachedTokens, api body.API, answer []byte) []byte {
	return edited(answer, c.edits(api, answer, "usage")).Bytes()
}

// dataOf is the data of a stream's events, on one line for each.
func dataOf(stream string) (all []string) {
	for event := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		var data strings.Builder
		for line := range strings.Lines(event) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "data:"); ok {
				data.WriteString(strings.TrimPrefix(value, " "))
			}
		}
		all = append(all, data.String())
	}
	return all
}

// The usage that we have asked for reaches no client, however it comes, and the finish that waits for it goes out once: with the fingerprint that
// a stock engine's finish has.
func TestUsage_ThatWeHaveAskedForReachesNoClient(t *testing.T) {
	const (
		text    = `{"id":"cmpl-x","choices":[{"index":0,"text":"a","finish_reason":null}]}`
		finish  = `{"id":"cmpl-x","choices":[{"index":0,"text":"","finish_reason":"stop"}]}`
		again   = `{"id":"cmpl-x","choices":[{"index":0,"text":"b","finish_reason":"stop"}]}`
		usage   = `{"id":"cmpl-x","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1},"system_fingerprint":"v"}`
		resumed = `{"id":"cmpl-x","choices":[{"index":0,"text":"","finish_reason":"stop"}],"system_fingerprint":"v"}`
		failure = `{"error":{"message":"of the engine"}}`
		done    = "[DONE]"
	)
	type row struct{ in, out []string }
	counts := func(e string) string {
		return strings.Replace(e, "}]}", `}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, 1)
	}
	forced := []string{counts(text), counts(finish), usage, done}
	rows := map[string]row{
		"no usage":        {[]string{text, finish, done}, []string{text, finish, done}},
		"an old vLLM's":   {[]string{text, finish, strings.Replace(usage, `,"system_fingerprint":"v"`, "", 1), done}, []string{text, finish, done}},
		"twice":           {[]string{text, finish, usage, usage, done}, []string{text, resumed, done}},
		"with the params": {[]string{text, finish, strings.TrimSuffix(usage, "}") + `,"kv_transfer_params":{"a":1}}`, done}, []string{text, resumed, done}},
		"no end":          {[]string{text, finish}, []string{text, finish}},
		"a second finish": {[]string{text, finish, again, done}, []string{text, finish, again, done}},
		"before finish":   {[]string{text, usage, finish, done}, []string{text, finish, done}},
		"then an error":   {[]string{text, finish, usage, failure, done}, []string{text, resumed, failure, done}},
		"told to all":     {forced, forced}, // --enable-force-include-usage
	}
	// An event's data over several lines is one event all the same (WHATWG HTML 9.2.6).
	for i, split := range []*strings.Replacer{
		strings.NewReplacer(), strings.NewReplacer(`,"usage"`, ",\ndata: \"usage\""), strings.NewReplacer(`"choices":[]`, "\"choices\":[\ndata: ]"),
		strings.NewReplacer(`"usage":{`, "\"usage\":\r\ndata:{"), strings.NewReplacer(`{"id"`, "\ndata: {\"id\""), strings.NewReplacer(`"v"}`, "\"v\"}\ndata: "),
		strings.NewReplacer(`,"usage"`, "\nid: 7\ndata: ,\"usage\""), strings.NewReplacer(`"v"}`, "\"v\",\ndata: \"kv_transfer_params\":null}"),
	} {
		rows[fmt.Sprint("split ", i)] = row{[]string{text, finish, split.Replace(usage), done}, []string{text, resumed, done}}
		lines := strings.Replace(finish, `[{`, "[\ndata: {\ndata: ", 1)
		rows[fmt.Sprint("split, and the finish ", i)] = row{[]string{text, lines, split.Replace(usage), done}, []string{text, resumed, done}}
	}
	for name, row := range rows {
		in := "data: " + strings.Join(row.in, "\n\ndata: ") + "\n\n"
		for split, from := range agentSplits(in) {
			a := agentAnswer(&facts.AnswerIDs{}, body.Text, "x", Asks{IDs: true, Hidden: true, Usage: true}, &told{})
			chunkMode{proven: true}.prove(t, a)
			var out strings.Builder
			err := sse.New(&out, nil, a.Relay()).Run(from)
			if got := dataOf(out.String()); err != nil || !slices.Equal(got, row.out) {
				t.Errorf("%s, %s: %v, got\n%s\nwant\n%s", name, split, err, strings.Join(got, "\n"), strings.Join(row.out, "\n"))
			}
			if counted := a.usage == (Usage{1, 1, -1}); counted != strings.Contains(in, "usage") {
				t.Errorf("%s, %s: counted %+v", name, split, a.usage)
			}
		}
	}
}
