package engines

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"carryover/upstream/exchangetest"
)

// TestShape_IsThatOfTheRecordings compares the members of what the engines answer with those of exchanges of vLLM 0.32.
func TestShape_IsThatOfTheRecordings(t *testing.T) {
	e := startEngines(t, Pace{Chunks: 6, VLLM: VLLM032})
	const asked = `"max_tokens":1,"stream":false,"return_token_ids":true,"kv_transfer_params":`
	whole := func(recording, url, body string) (answer string) {
		t.Helper()
		_, answer = ask(t, url, recording, body)
		sameShape(t, recording, []string{answer})
		return answer
	}
	prefill := whole("01-prefill-turn1.json", e.Prefill+ChatPath, chat(question, asked+NoTicket))
	messages, ticket := firstTurn(t, e)
	whole("04-prefill-turn2-partial-reuse.json", e.Prefill+ChatPath, chat(messages, asked+ticket))
	_, stream := ask(t, e.Decode+ChatPath, "c", chat(question, streamed+`,"return_token_ids":true,"stream_options":{"include_usage":true},"kv_transfer_params":`+params(t, prefill)))
	sameShape(t, "21-decode-stream-own-plugin.json", events(stream))
	whole("10-decode-without-params.json", e.Decode+ChatPath, chat(question, `"max_tokens":4`))
	whole("03-tokenize-turn2.json", e.Prefill+"/tokenize", chat(messages, `"add_generation_prompt":true`))
	whole("13-render-disabled.json", e.Prefill+ChatPath+"/render", chat(question, `"temperature":0`))
	whole("14-bad-prompt-token-ids.json", e.Prefill+ChatPath, chat(question, `"kv_transfer_params":{"do_remote_decode":true,"prompt_token_ids":[1,-1]}`))
	whole("18-version.json", e.Decode+"/version", "")

	must(t, e.Set(t.Context(), Pace{Chunks: 6, ChunkIDs: true, VLLM: VLLM032}))
	prefill = whole("01-prefill-turn1.json", e.Prefill+ChatPath, chat(question, asked+NoTicket))
	whole("02-decode-turn1.json", e.Decode+ChatPath, chat(question, `"return_token_ids":true,"kv_transfer_params":`+params(t, prefill)))
	if f, _ := mustFaults(t, e); f.Any() {
		t.Errorf("faults %+v", f)
	}
}

// TestShape_IsThatOfTheStreamsOfVLLM033 compares streams with those of a real pair: with and without params, ids and a plug-in.
func TestShape_IsThatOfTheStreamsOfVLLM033(t *testing.T) {
	for recording, how := range map[string]struct {
		ids     bool // in chunks
		members string
		handed  bool
		chunks  int
	}{
		"chat-params":  {true, "", true, 4},
		"chat-plug-in": {false, "", true, 4},
		"chat-usage":   {true, `,"return_token_ids":true,"stream_options":{"include_usage":true}`, true, 4},
		"chat-null":    {false, "", false, 3},
	} {
		want, err := os.ReadFile(filepath.Join("..", "..", "..", "sse", "testdata", "vllm-0.33-"+recording+".sse"))
		must(t, err)
		e := startEngines(t, Pace{Chunks: how.chunks, ChunkIDs: how.ids})
		members := streamed + how.members
		if how.handed {
			members += `,"kv_transfer_params":` + prefillLeg(t, e, question, NoTicket)
		}
		_, stream := ask(t, e.Decode+ChatPath, "leg", chat(question, members))
		sameEvents(t, recording, events(stream), events(string(want)))
		if f, _ := mustFaults(t, e); f.Any() {
			t.Errorf("%s: faults %+v", recording, f)
		}
	}
}

// events are the data of a stream's events, but [DONE].
func events(stream string) []string {
	var list []string
	for event := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		if data := strings.TrimPrefix(event, "data: "); data != "[DONE]" {
			list = append(list, data)
		}
	}
	return list
}

func sameShape(t *testing.T, recording string, got []string) {
	t.Helper()
	recorded := exchangetest.Read(t, "vllm-0.32", recording).Response
	want := []string{string(recorded.JSON)}
	if recorded.Text != "" {
		want = events(recorded.Text)
	}
	sameEvents(t, recording, got, want)
}

func sameEvents(t *testing.T, recording string, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d events, want %d", recording, len(got), len(want))
	}
	for i := range want {
		if got, want := exchangetest.Shape(t, []byte(got[i])), exchangetest.Shape(t, []byte(want[i])); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, %d:\ngot  %s\nwant %s", recording, i, got, want)
		}
	}
}

// TestTokens_HistoryIsWhatDecodeHolds checks what makes reuse possible: the ids of a prompt with an answer in it begin with those of the
// prompt before, and the answer's own.
func TestTokens_HistoryIsWhatDecodeHolds(t *testing.T) {
	for _, pace := range []Pace{{Chunks: 7}, {Chunks: 1}} {
		e := startEngines(t, pace)
		messages, ticket := firstTurn(t, e)
		tokenised := func(messages string) []json.Number {
			var answer struct{ Tokens []json.Number }
			_, text := ask(t, e.Prefill+"/tokenize", "t", chat(messages, `"add_generation_prompt":true`))
			must(t, json.Unmarshal([]byte(text), &answer))
			return answer.Tokens
		}
		var left struct {
			Output []json.Number `json:"output_token_ids"`
			Tokens int           `json:"remote_num_tokens"`
		}
		must(t, json.Unmarshal([]byte(ticket), &left))
		before, after := tokenised(question), tokenised(messages)
		held := append(before, left.Output...)
		if len(held) > len(after) || fmt.Sprint(after[:len(held)]) != fmt.Sprint(held) || left.Tokens != len(held)-1 || len(left.Output) != pace.Chunks {
			t.Errorf("decode holds %v (%d), the next prompt is %v", held, left.Tokens, after)
		}
	}
}
