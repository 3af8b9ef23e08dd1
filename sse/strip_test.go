package sse

import (
	"strings"
	"testing"
	"testing/iotest"

	"carryover/sse/rawjson"
	"carryover/sse/rawjson/rawjsontest"
)

// ended is an event with the blank line behind it that most have.
func ended(event string) string {
	if event == "" || strings.HasSuffix(event, "\r") || strings.HasSuffix(event, "\n") {
		return event
	}
	return event + "\n\n"
}

func TestRelay_CutsAndCapturesTheMember(t *testing.T) {
	const kv = `{"remote_host":"10.0.0.1","remote_block_ids":[[1,2]]}`
	substance := []string{"choices", "usage", "error"}
	deep, deepest := rawjsontest.Nested(rawjson.MaxDepth+1), rawjsontest.Nested(20000) // encoding/json reads 10000 levels
	for _, tc := range []struct{ name, input, want, member string }{
		{"on the finish chunk", `data: {"choices":[{"finish_reason":"stop"}],"kv_transfer_params":` + kv + "}", `data: {"choices":[{"finish_reason":"stop"}]}`, kv},
		{"first", `data: {"kv_transfer_params":` + kv + `,"choices":[1]}`, `data: {"choices":[1]}`, kv},
		{"in the middle, with spaces", `data: {"id": 1, "kv_transfer_params" : ` + kv + ` , "usage": {"a":1}}`, `data: {"id": 1 , "usage": {"a":1}}`, kv},
		{"twice, the last counts", `data: {"kv_transfer_params":1,"kv_transfer_params":2,"usage":{"a":1},"kv_transfer_params":3}`, `data: {"usage":{"a":1}}`, "3"},
		{"name spelled with an escape", `data: {"choices":[1],"kv_tran\u0073fer_params":` + kv + "}", `data: {"choices":[1]}`, kv},
		{"name spelled in escapes only in part, twice", `data: {"\u006bv_transfer_params":1,"choices":[1],"kv_transfer_params":2}`, `data: {"choices":[1]}`, "2"},
		{"without space after the colon", `data:{"choices":[1],"kv_transfer_params":` + kv + "}", `data:{"choices":[1]}`, kv},
		{"typed event with CRLF", "event: message\r\n" + `data: {"kv_transfer_params":` + kv + `,"choices":[1]}` + "\r\n\r\n", "event: message\r\n" + `data: {"choices":[1]}` + "\r\n\r\n", kv},
		{"over two data lines", "data: {\"choices\":[1],\ndata: \"kv_transfer_params\":{\"a\":\ndata:1}\ndata: }", "data: {\"choices\":[1]\ndata: }", "{\"a\":\n1}"},
		{"first, at the beginning of a data line", "data: {\ndata: \"kv_transfer_params\":1,\ndata: \"choices\":[1]}", "data: {\ndata: \ndata: \"choices\":[1]}", "1"},
		{"over CR lines with a comment between", "data: {\"kv_transfer_params\":\r: ping\rdata: 7,\"choices\":[1]}\r\r", "data: {\"choices\":[1]}\r\r", "7"},
		{"behind a value that is too deep to be read", `data: {"choices":[1],"x":` + deep + `,"kv_transfer_params":` + kv + "}", `data: {"choices":[1],"x":` + deep + "}", kv},
		{"behind a value that no reader reads", `data: {"choices":[1],"x":` + deepest + `,"kv_transfer_params":` + kv + "}", `data: {"choices":[1],"x":` + deepest + "}", kv},
		{"before a value that is too deep to be read", `data: {"kv_transfer_params":` + kv + `,"choices":` + deep + "}", `data: {"choices":` + deep + "}", kv},
		{"too deep to be read itself", `data: {"choices":[1],"kv_transfer_params":` + deep + "}", `data: {"choices":[1]}`, deep},
		{"too deep and not JSON", `data: {"choices":[1],"x":` + deep + `],"kv_transfer_params":` + kv + "}", "", ""},

		{"no choices, no usage: dropped whole", `data: {"id":"x","choices":[],"kv_transfer_params":` + kv + "}", "", kv},
		{"alone: dropped whole", `data: {"kv_transfer_params":` + kv + "}\r\n\r\n", "", kv},
		{"empty substance of all kinds", `data: {"choices":[ ],"usage":{ },"error":null,"kv_transfer_params":1}` + "\r\r", "", "1"},
		{"an error is substance", `data: {"error":{"code":500},"kv_transfer_params":1}`, `data: {"error":{"code":500}}`, "1"},
		{"substance as a number", `data: {"usage":0,"kv_transfer_params":1}`, `data: {"usage":0}`, "1"},

		{"escaped in a string", `data: {"choices":[{"delta":{"content":"\"kv_transfer_params\":{\"remote_host\":\"evil\"}"}}]}`, "", ""},
		{"unescaped text of a string", `data: {"choices":["x"],"a":"kv_transfer_params"}`, "", ""},
		{"in a choice", `data: {"choices":[{"kv_transfer_params":{"remote_host":"evil"}}]}`, "", ""},
		{"in a delta, escaped name", `data: {"choices":[{"delta":{"kv_tran\u0073fer_params":1}}]}`, "", ""},
		{"in usage", `data: {"usage":{"kv_transfer_params":1}}`, "", ""},
		{"in an array", `data: [{"kv_transfer_params":1}]`, "", ""},
		{"a string as a whole", `data: "kv_transfer_params"`, "", ""},
		{"content that looks like an event", `data: {"choices":["\n\ndata: {\"kv_transfer_params\":1}\n\n"]}`, "", ""},
		{"not JSON", `data: {"kv_transfer_params":{"a":1},}`, "", ""},
		{"JSON and more", `data: {"kv_transfer_params":1} x`, "", ""},
		{"in a comment", `: {"kv_transfer_params":1}`, "", ""},
		{"in another field", `event: {"kv_transfer_params":1}` + "\ndata: x", "", ""},
		{"name in another case", `data: {"KV_transfer_params":1}`, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.input, tc.want = ended(tc.input), ended(tc.want)
			// The event stands between two others, so that a wrong cut shows in them too.
			before, after := "data: {\"choices\":[0]}\r\n\r\n", "data: [DONE]\n\n"
			want := tc.want
			if tc.member == "" {
				want = tc.input
			}
			var out strings.Builder
			member := ""
			r := New(&out, nil, Config{Strip: params, Substance: substance, Observe: func(e Event) Verdict {
				member += string(e.Member)
				return Forward
			}})
			must(t, r.Run(iotest.HalfReader(strings.NewReader(before+tc.input+after))))
			if got := out.String(); got != before+want+after {
				t.Errorf("relayed:\n got %q\nwant %q", got, before+want+after)
			}
			if member != tc.member {
				t.Errorf("captured: got %q, want %q", member, tc.member)
			}
		})
	}
}

func TestRelay_UnfinishedEventIsNeitherCapturedNorCut(t *testing.T) {
	const input = `data: {"choices":[1],"kv_transfer_params":1}` + "\n"
	var out strings.Builder
	r := New(&out, nil, Config{Strip: params, Observe: func(e Event) Verdict {
		t.Errorf("observed %q, want nothing", e.Data)
		return Forward
	}})
	if err := r.Run(strings.NewReader(input)); err != nil || out.String() != input {
		t.Errorf("Run: error %v, relayed %q; want nil and %q", err, out.String(), input)
	}
}

func TestRelay_EmptySubstanceListDropsNothing(t *testing.T) {
	var out strings.Builder
	must(t, New(&out, nil, Config{Strip: params}).Run(strings.NewReader(`data: {"kv_transfer_params":1}`+"\n\n")))
	if got, want := out.String(), "data: {}\n\n"; got != want {
		t.Errorf("relayed: got %q, want %q", got, want)
	}
}

func TestRelay_NameThatJSONMaySpellWithShortEscapes(t *testing.T) {
	var out strings.Builder
	must(t, New(&out, nil, Config{Strip: "a/b"}).Run(strings.NewReader(`data: {"a\/b":1,"c":2}`+"\n\n")))
	if got, want := out.String(), `data: {"c":2}`+"\n\n"; got != want {
		t.Errorf("relayed: got %q, want %q", got, want)
	}
}

func TestRelay_LastEventsOfARecordedStreamWithParams(t *testing.T) {
	stream := string(recorded(t)["vllm-0.32-chat-params"])
	at := strings.LastIndex(stream, `data: {"id"`)
	var out strings.Builder
	var member string
	r := New(&out, nil, Config{Strip: params, Substance: []string{"choices", "usage"}, Observe: func(e Event) Verdict {
		member += string(e.Member)
		return Forward
	}})
	must(t, r.Run(strings.NewReader(stream)))
	if got, want := out.String(), stream[:at]+"data: [DONE]\n\n"; got != want {
		t.Errorf("relayed:\n got %q\nwant %q", got, want)
	}
	if !strings.HasPrefix(member, `{"do_remote_prefill":false`) || !strings.HasSuffix(member, `"transfer_mode":"pull"}`) {
		t.Errorf("captured %q, want the params of the recording", member)
	}
}
