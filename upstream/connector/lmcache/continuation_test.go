package lmcache

import (
	"strings"
	"testing"

	"carryover/upstream/body"
)

func TestEvent_OfDecode(t *testing.T) {
	const chat, text = `{"max_tokens":9,"stream":true}`, `{"max_tokens":9,"stream":true,"logprobs":1}`
	const logprobs = `"logprobs":{"text_offset":[0,2],"token_logprobs":[-1,null],"tokens":["ab","é"],"top_logprobs":[{"ab":-1},null]}`
	for _, row := range []struct {
		event, chat, text string
	}{
		{
			`{"id":"cmpl-d","object":"text_completion","created":6,"model":"n","choices":[{"index":0,"text":"a\n","logprobs":null,"finish_reason":null,"stop_reason":null}]}`,
			`{"id":"chatcmpl-turn-1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"content":"a\n"},"logprobs":null,"finish_reason":null}]}`,
			`{"id":"cmpl-turn-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"a\n","logprobs":null,"finish_reason":null,"stop_reason":null}]}`,
		},
		{
			`{"choices":[{"text":"","finish_reason":"stop","stop_reason":"#","x":[1.50]}],"metrics":{"a":1e2},"y":"\u00e9"}`,
			`{"choices":[{"delta":{"content":""},"finish_reason":"stop","stop_reason":"#","x":[1.50]}],"metrics":{"a":1e2},"y":"\u00e9"}`,
			`{"choices":[{"text":"","finish_reason":"stop","stop_reason":"#","x":[1.50]}],"metrics":{"a":1e2},"y":"\u00e9"}`,
		},
		{
			`{"choices":[{"text":"abé",` + logprobs + `}]}`,
			`{"choices":[{"delta":{"content":"abé"},"logprobs":{"content":[{"token":"ab","logprob":-1,"bytes":[97,98],"top_logprobs":[]},{"token":"é","logprob":-9999.0,"bytes":[195,169],"top_logprobs":[]}]}}]}`,
			`{"choices":[{"text":"abé",` + strings.Replace(logprobs, "[0,2]", "[3,5]", 1) + `}]}`,
		},
		{`{"choices":[],"usage":{"prompt_tokens":4,"total_tokens":6,"completion_tokens":2,"z":0}}`, "", `{"choices":[],"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3,"z":0}}`}, // usage without choices
		{`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":2}}`, "", `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":2}}`},                                               // usage of no prompt
		{`{"choices":[],"usage":null}`, "", `{"choices":[],"usage":null}`},                                                                                                                         // usage of another type
		{`{"error": {"code": 500}}`, "", `{"error": {"code": 500}}`},                                                                                                                               // an error
		{`{"error":"x","choices":[{"text":"a"}]}`, "", `{"error":"x","choices":[{"text":"a"}]}`},                                                                                                   // an error with choices
		{`{"ping":1}`, "", `{"ping":1}`},                                    // no choices
		{`{"choices":[{"text":"a"}`, "", unreadable},                        // no JSON
		{`{"choices":[],"choices":[]}`, "", unreadable},                     // members twice
		{`{"choices":[{"text":"a"},{"text":"b"}]}`, "", unreadable},         // two choices
		{`{"choices":[{"delta":{"content":"a"}}]}`, "", unreadable},         // no text
		{`{"choices":"a"}`, "", unreadable},                                 // choices of another type
		{"{\"choices\":\n[],\r\n\"a\":{\n}}", "", `{"choices":[],"a":{ }}`}, // several lines
	} {
		if row.chat == "" {
			row.chat = row.text
		}
		first := firstAnswer("xyz", 3, `"logprobs":null`, `"logprobs":{"text_offset":[0],"token_logprobs":[-1],"tokens":["xyz"],"top_logprobs":[{"xyz":-1}]}`)
		for api, want := range map[body.API][2]string{body.Chat: {chat, row.chat}, body.Text: {text, row.text}} {
			h := handOver(t, newBench(nil).plan(t, transfer(t, api, want[0], 3)), first)
			if got := string(h.Rewrite.Event([]byte(row.event))); got != want[1] {
				t.Errorf("%s at %s: got %s, want %s", row.event, api.Path(), got, want[1])
			}
			if body, err := h.Rewrite.Body([]byte(firstAnswer("a", 4))); err == nil {
				t.Errorf("an answer in one piece became %s, behind a head that the client has", body)
			}
		}
	}
}

func TestBody_OfDecode(t *testing.T) {
	first := firstAnswer("xy", 3, `"logprobs":null`, `"logprobs":{"text_offset":[0],"token_logprobs":[-1],"tokens":["xy"],"top_logprobs":[{"xy":-1}]}`)
	h := handOver(t, newBench(nil).plan(t, transfer(t, body.Text, `{"max_tokens":9,"logprobs":0}`, 3)), first)
	got, err := h.Rewrite.Body([]byte(`{"choices":[{"text":"z","logprobs":{"text_offset":[0],"token_logprobs":[-2],"tokens":["z"],"top_logprobs":[{"z":-2}]}}]}`))
	const want = `{"choices":[{"text":"xyz","logprobs":{"text_offset":[0,2],"token_logprobs":[-1,-2],"tokens":["xy","z"],"top_logprobs":[{"xy":-1},{"z":-2}]}}]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	const failed = `{"error":{"code":500}}`
	if got, err := h.Rewrite.Body([]byte(failed)); err != nil || string(got) != failed {
		t.Errorf("got %s, %v, want the error as it is", got, err)
	}
	for _, body := range []string{``, `null`, `[]`, `{}`, `{"choices":[]}`, `{"choices":[{"message":{"content":"z"}}]}`, `{"choices":[{"text":"z"},{"text":"z"}]}`} {
		if got, err := h.Rewrite.Body([]byte(body)); err == nil {
			t.Errorf("Body(%s) = %s, want an error", body, got)
		}
	}
	if got := string(h.Rewrite.Event([]byte(`{"choices":[{"text":"z"}]}`))); got != unreadable {
		t.Errorf("an event to a client that has no head became %s", got)
	}
}
