package sse

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carryover/sse/rawjson"
	"carryover/sse/rawjson/rawjsontest"
)

// What vLLM 0.32 sends with return_token_ids, shortened: the first chat chunk, a chat chunk, a text chunk, whole answers.
const (
	firstChunk = `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[1,87,1892],"prompt_text":null}`
	chatChunk  = `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null,"token_ids":[5]}]}`
	textChunk  = `{"id":"cmpl-1","choices":[{"index":0,"text":"a","finish_reason":null,"stop_reason":null,"prompt_token_ids":[1,2],"token_ids":[5]}]}`
	chatAnswer = `{"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop","token_ids":[5,6],"routed_experts":null}],"usage":{"prompt_tokens":3},"prompt_logprobs":null,"prompt_token_ids":[1,87,1892],"kv_transfer_params":{}}`
)

// nullTokenIDs puts null in place of the arrays that AllTokenIDs finds.
func nullTokenIDs(object []byte) (rest, prompt, output []byte) {
	all, prompt, output := AllTokenIDs(object)
	kept := 0
	for _, r := range all {
		rest = append(append(rest, object[kept:r.From]...), "null"...)
		kept = r.To
	}
	return append(rest, object[kept:]...), prompt, output
}

// nullIDs is a call of Null from an observer.
func nullIDs(e Event) Verdict {
	if ids, ok := FindTokenIDs(e.Data); ok {
		ids.Null(e)
	}
	return Forward
}

// Beside values that are too deep to be read, which FuzzFindTokenIDs leaves out.
func TestTokenIDs_BesideDeepValues(t *testing.T) {
	deep := rawjsontest.Nested(rawjson.MaxDepth + 1)
	data := `{"x":` + deep + `,"choices":[{"x":` + deep + `,"token_ids":[5]},` + deep + `]}`
	want := strings.Replace(data, "[5]", "null", 1)
	out, _, err := run(strings.NewReader("data: "+data+"\n\n"), Config{Observe: nullIDs})
	if rest, _, _ := nullTokenIDs([]byte(data)); string(rest) != want || err != nil || out != "data: "+want+"\n\n" {
		t.Errorf("got %s, relayed %q, %v", rest, out, err)
	}
}

func TestFindTokenIDs_CostsNoAllocation(t *testing.T) {
	for _, data := range [][]byte{[]byte(firstChunk), []byte(chatChunk), []byte(textChunk), []byte(chatAnswer)} {
		if n := testing.AllocsPerRun(100, func() { FindTokenIDs(data) }); n != 0 {
			t.Errorf("FindTokenIDs(%s): %.0f allocations, want 0", data, n)
		}
	}
}

// member returns the last value that encoding/json finds for a member of an object, nil without one.
func member(object []byte, name string) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	return members[name]
}

// asArray returns a value that is an array, nil for any other.
func asArray(value json.RawMessage) []byte {
	if bytes.HasPrefix(value, []byte("[")) {
		return value
	}
	return nil
}

// firstChoice returns choices[0].
func firstChoice(object []byte) []byte {
	var choices []json.RawMessage
	if json.Unmarshal(member(object, "choices"), &choices) != nil || len(choices) == 0 {
		return nil
	}
	return choices[0]
}

// idsOf says what encoding/json finds, in the order of TokenIDs.Ranges.
func idsOf(object []byte) [3][]byte {
	choice := firstChoice(object)
	return [3][]byte{asArray(member(object, "prompt_token_ids")), asArray(member(choice, "prompt_token_ids")), asArray(member(choice, "token_ids"))}
}

// FuzzFindTokenIDs compares with encoding/json. Where nothing counts, nothing is found, and all stays as it is.
func FuzzFindTokenIDs(f *testing.F) {
	for _, data := range []string{
		firstChunk, chatChunk, textChunk, chatAnswer,
		` { "prompt_token_ids" : [ ] , "choices" : [ { "token_ids" : [ 1 , 2 ] , "x" : [] } ] } `,
		`{"choices":[{"token\u005fids":[5]}],"\u0070rompt_token_ids":[1]}`,
		`{"choices":[{"token\u005fids":[5]}]}`,
		`{"choices":[ ],"prompt_token_ids":[1]}`,
		`{"choices":[1,"x",[]],"prompt_token_ids":[1]}`,
		`{"choices":[{"prompt_token_ids":[2]}],"prompt_token_ids":[1]}`,
		`{"choices":[{"prompt_token_ids":"[2]","token_ids":[5]}],"prompt_token_ids":{"a":[1]}}`,
		`{"choices":[{"token_ids":["]",[{"token_ids":[1]}]]}]}`,
		`{"x":"\"prompt_token_ids\":[1]","choices":[{"delta":{"token_ids":[2]},"text":"\"token_ids\":[3]","token_ids":[4]}]}`,
		``, `[DONE]`, `{}`, `null`, `"token_ids"`, `[{"prompt_token_ids":[1]}]`,
		`{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":null}],"prompt_token_ids":null}`,
		`{"token_ids":[1]}`, `{"choices":{"token_ids":[1]}}`, `{"choices":[[{"token_ids":[1]}]]}`, `{"choices":[],"x":{"prompt_token_ids":[1]}}`,
		`{"choices":[1,{}],"Prompt_token_ids":[1]}`, `{"choices":null,"x":"token_ids"}`, `{"choices":[{}],"usage":{"token_ids":[1]}}`,
		`{"prompt_token_ids":[1]`, `{"prompt_token_ids":[1]}}`, `{"prompt_token_ids":[1,]}`, `{"prompt_token_ids":[1],"choices":[{"a":1]}`,
		`{"prompt_token_ids":[1],"choices":[}`, `{"prompt_token_ids":[1],"choices":[1 2]}`, `{"prompt_token_ids":[1],"choices":[{"token_ids":[1]}`,
		`{"choices":[{"token_ids":[1]},x]}`, `{"choices":[{"token_ids":[1]}],"x":"\x"}`, `{"choices":[{"token_ids":[1],"x"}]}`,
		`{token_ids":[1]}`, `{"token_ids"}`, `{"choices":[{token_ids":[1]}]}`, `{"token_ids":`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if tooDeep(data) {
			return
		}
		want := idsOf(data)
		ids, ok := FindTokenIDs(data)
		rest, prompt, output := nullTokenIDs(data)
		if wantOK := want[0] != nil || want[1] != nil || want[2] != nil; ok != wantOK || !ok && !reflect.DeepEqual(ids, TokenIDs{}) {
			t.Fatalf("FindTokenIDs(%q): %+v, %t, want %t", data, ids, ok, wantOK)
		}
		for i, r := range ids.Ranges {
			if got := data[r.From:r.To]; !bytes.Equal(got, want[i]) {
				t.Fatalf("FindTokenIDs(%q): range %d is %q, want %q", data, i, got, want[i])
			}
			if want[i] == nil {
				continue
			}
			// The range stands where the value is, and not where another value looks the same.
			marked := string(data[:r.From]) + `["marked"]` + string(data[r.To:])
			if got := idsOf([]byte(marked)); string(got[i]) != `["marked"]` {
				t.Fatalf("FindTokenIDs(%q): range %d, %v, is not that of the member", data, i, r)
			}
		}
		null, ranges := string(data), ids.Ranges
		slices.SortFunc(ranges[:], func(a, b rawjson.Span) int { return b.From - a.From })
		for _, r := range ranges {
			if r.To > r.From {
				null = null[:r.From] + "null" + null[r.To:]
			}
		}
		if out, _, err := run(strings.NewReader("data: "+string(data)+"\n\n"), Config{Observe: nullIDs}); ok && !bytes.ContainsAny(data, "\r\n") && (err != nil || out != "data: "+null+"\n\n") {
			t.Fatalf("%q is relayed as %q, %v, want %q", data, out, err, null)
		}
		wantPrompt := want[0]
		if wantPrompt == nil {
			wantPrompt = want[1]
		}
		for _, got := range [][2][]byte{{ids.Prompt, ids.Output}, {prompt, output}} {
			if !bytes.Equal(got[0], wantPrompt) || !bytes.Equal(got[1], want[2]) {
				t.Fatalf("token ids of %q: got %q, %q; want %q, %q", data, got[0], got[1], wantPrompt, want[2])
			}
		}
		if got, ok := rawjsontest.DecodeObject(rest); !reflect.DeepEqual(got, nulled(t, data)) || !ok && !bytes.Equal(rest, data) {
			t.Fatalf("AllTokenIDs(%q): rest %q, want only ids changed", data, rest)
		}
	})
}

// nulled decodes an object with null in place of the arrays of ids; nil for anything else.
func nulled(t *testing.T, object []byte) map[string]any {
	t.Helper()
	decoded, _ := rawjsontest.DecodeObject(object)
	null := func(in map[string]any, name string) {
		if _, ok := in[name].([]any); ok {
			in[name] = nil
		}
	}
	null(decoded, "prompt_token_ids")
	choices, _ := decoded["choices"].([]any)
	for _, c := range choices {
		if choice, ok := c.(map[string]any); ok {
			null(choice, "prompt_token_ids")
			null(choice, "token_ids")
		}
	}
	return decoded
}
