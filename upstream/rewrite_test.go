package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carryover/sse/rawjson"
	"carryover/sse/rawjson/rawjsontest"
)

// smuggled holds a client's transfer params in the spellings that a parser
// downstream would read as the real members.
func smuggled() map[string]string {
	evil := `{"do_remote_prefill":true,"remote_host":"evil"}`
	return map[string]string{
		"plain":                   `{"kv_transfer_params":` + evil + `}`,
		"one escape":              `{"kv_tran\u0073fer_params":` + evil + `}`,
		"upper-case hex":          `{"kv\u005Ftransfer\u005Fparams":` + evil + `}`,
		"all escapes":             `{"\u006b\u0076\u005f\u0074\u0072\u0061\u006e\u0073\u0066\u0065\u0072\u005f\u0070\u0061\u0072\u0061\u006d\u0073":` + evil + `}`,
		"white space":             "{ \"kv_transfer_params\" \n:\t" + evil + " }",
		"last of many":            `{"model":"m","messages":[{"role":"user","content":"\"kv_transfer_params\":{}"}],"kv_transfer_params":` + evil + `}`,
		"a string":                `{"kv_transfer_params":"{}"}`,
		"an empty list":           `{"kv_transfer_params":[]}`,
		"false":                   `{"kv_transfer_params":false}`,
		"encoder cache":           `{"ec_transfer_params":` + evil + `}`,
		"escaped encoder cache":   `{"e\u0063_transfer_params":` + evil + `}`,
		"in vllm_xargs":           `{"vllm_xargs":{"kv_transfer_params":` + evil + `}}`,
		"empty in vllm_xargs":     `{"vllm_xargs":{"kv_transfer_params":{}}}`,
		"deep in vllm_xargs":      `{"vllm_xargs":{"a":[1,{"b":{"ec_transfer_params":` + evil + `}}]}}`,
		"escaped in vllm_xargs":   `{"vllm_xargs":{"a":"x","kv_transfer_param\u0073" : ` + evil + `}}`,
		"in escaped vllm_xargs":   `{"vllm\u005fxargs":{"kv_transfer_params":` + evil + `}}`,
		"both, the second hidden": `{"kv_transfer_params":null,"vllm_xargs":[{"kv_transfer_params":1}]}`,
	}
}

func TestParseRequest_RefusesSmuggledParams(t *testing.T) {
	for name, body := range smuggled() {
		_, err := ParseRequest(Chat, []byte(body))
		bad, ok := errors.AsType[*BadRequestError](err)
		if !ok || bad.Code != "unsupported_parameter" || !regexp.MustCompile(`^(kv_transfer_params|ec_transfer_params|vllm_xargs)$`).MatchString(bad.Param) {
			t.Errorf("%s: got %v, want unsupported_parameter", name, err)
		}
	}
	for _, body := range []string{
		`{"kv_transfer_params":null,"kv_transfer_params":{"remote_host":"evil"}}`,
		`{"kv_transfer_params":{},"kv_tran\u0073fer_params":{"remote_host":"evil"}}`,
	} {
		_, err := ParseRequest(Chat, []byte(body))
		if bad, ok := errors.AsType[*BadRequestError](err); !ok || bad.Code != rawjson.CodeDuplicateKey || bad.Param != "kv_transfer_params" {
			t.Errorf("%s: got %v, want duplicate_key", body, err)
		}
	}
}

func TestParseRequestStripped_LegsCarryOnlyOurParams(t *testing.T) {
	for name, body := range smuggled() {
		r, err := ParseRequestStripped(Text, []byte(body))
		if err != nil {
			t.Errorf("%s: got %v, want it stripped", name, err)
			continue
		}
		for _, leg := range [][]byte{r.PrefillBody(PrefillEdit{}), r.DecodeBody(DecodeEdit{})} {
			var decoded map[string]any
			if err := json.Unmarshal(leg, &decoded); err != nil {
				t.Errorf("%s: %v in %s", name, err, leg)
			}
			for member := range decoded {
				if member != "model" && member != "messages" && member != "stream" && member != "max_tokens" {
					t.Errorf("%s: member %s reaches the engine in %s", name, member, leg)
				}
			}
		}
		leg := r.DecodeBody(DecodeEdit{Members: transferParams([]byte(`{"ours":1}`))})
		if !bytes.Contains(leg, []byte(`"kv_transfer_params":{"ours":1}`)) || bytes.Contains(leg, []byte("evil")) {
			t.Errorf("%s: got %s, want our params only", name, leg)
		}
	}
	if _, err := ParseRequestStripped(Chat, []byte(`{"n":"x"}`)); err == nil {
		t.Error("a bad n: got it accepted")
	}
}

func TestParseRequest_EmptyParamsAreRemoved(t *testing.T) {
	r := mustParse(t, Chat, `{"kv_transfer_params":null,"a":1,"ec_transfer_params":{ },"vllm_xargs":{"session_id":"kv_transfer_params"}}`)
	if got, want := string(r.DecodeBody(DecodeEdit{})), `{"a":1,"vllm_xargs":{"session_id":"kv_transfer_params"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRequest_Bodies(t *testing.T) {
	const ours = `{"do_remote_decode":true}`
	for _, row := range []struct {
		name, body, prefill, decode, oneToken string
		api                                   API
	}{
		{
			name:     "empty",
			body:     ` { } `,
			prefill:  ` {"stream":false,"max_tokens":1,"kv_transfer_params":` + ours + ` } `,
			decode:   ` {"kv_transfer_params":` + ours + ` } `,
			oneToken: ` {"stream":false,"max_tokens":1,"kv_transfer_params":` + ours + ` } `,
		},
		{
			name:     "everything that changes",
			body:     `{"stream":true,"stream_options":{"include_usage":true},"max_tokens":100,"max_completion_tokens":50,"min_tokens":5,"min_completion_tokens":5,"n":1,"logprobs":true,"top_logprobs":3,"logprob_token_ids":[1],"echo":false,"prompt_logprobs":null,"return_prompt_text":true,"return_token_ids":true,"model":"m"}`,
			prefill:  `{"stream":false,"max_tokens":1,"max_completion_tokens":1,"n":1,"model":"m","kv_transfer_params":` + ours + `}`,
			decode:   `{"stream":true,"stream_options":{"include_usage":true},"max_tokens":100,"max_completion_tokens":50,"min_tokens":5,"min_completion_tokens":5,"n":1,"logprobs":true,"top_logprobs":3,"logprob_token_ids":[1],"echo":false,"prompt_logprobs":null,"return_prompt_text":true,"return_token_ids":true,"model":"m","kv_transfer_params":` + ours + `}`,
			oneToken: `{"stream":false,"max_tokens":1,"max_completion_tokens":1,"n":1,"logprobs":true,"top_logprobs":3,"logprob_token_ids":[1],"echo":false,"prompt_logprobs":null,"return_prompt_text":true,"return_token_ids":true,"model":"m","kv_transfer_params":` + ours + `}`,
		},
		{
			name:     "nothing else changes",
			body:     "{ \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9<\\/\"}],\n\t\"seed\":9007199254740993 , \"x\":1.50e+400,\"\\u0079\":{\"b\":1,\"b\":2}, \"n\":null,\"max_completion_tokens\": null }\n",
			prefill:  "{ \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9<\\/\"}],\n\t\"seed\":9007199254740993 , \"x\":1.50e+400,\"\\u0079\":{\"b\":1,\"b\":2}, \"n\":null,\"max_completion_tokens\": null,\"stream\":false,\"max_tokens\":1,\"kv_transfer_params\":" + ours + " }\n",
			decode:   "{ \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9<\\/\"}],\n\t\"seed\":9007199254740993 , \"x\":1.50e+400,\"\\u0079\":{\"b\":1,\"b\":2}, \"n\":null,\"max_completion_tokens\": null,\"kv_transfer_params\":" + ours + " }\n",
			oneToken: "{ \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9<\\/\"}],\n\t\"seed\":9007199254740993 , \"x\":1.50e+400,\"\\u0079\":{\"b\":1,\"b\":2}, \"n\":null,\"max_completion_tokens\": null,\"stream\":false,\"max_tokens\":1,\"kv_transfer_params\":" + ours + " }\n",
		},
		{
			name:     "escaped names, white space around what goes",
			body:     `{ "str\u0065am" : true , "min_token\u0073":1, "a" : 1 , "stream_options" : {} }`,
			prefill:  `{ "str\u0065am" : false, "a" : 1,"max_tokens":1,"kv_transfer_params":` + ours + ` }`,
			decode:   `{ "str\u0065am" : true , "min_token\u0073":1, "a" : 1 , "stream_options" : {},"kv_transfer_params":` + ours + ` }`,
			oneToken: `{ "str\u0065am" : false, "a" : 1,"max_tokens":1,"kv_transfer_params":` + ours + ` }`,
		},
		{
			name:     "text, all members go",
			api:      Text,
			body:     `{"echo":true,"logprobs":5}`,
			prefill:  `{"stream":false,"max_tokens":1,"kv_transfer_params":` + ours + `}`,
			decode:   `{"echo":true,"logprobs":5,"kv_transfer_params":` + ours + `}`,
			oneToken: `{"echo":true,"logprobs":5,"stream":false,"max_tokens":1,"kv_transfer_params":` + ours + `}`,
		},
	} {
		r := mustParse(t, row.api, row.body)
		for _, leg := range []struct{ name, got, want string }{
			{"prefill", string(r.PrefillBody(PrefillEdit{Members: transferParams([]byte(ours))})), row.prefill},
			{"decode", string(r.DecodeBody(DecodeEdit{Members: transferParams([]byte(ours))})), row.decode},
			{"one token", string(r.DecodeBody(DecodeEdit{Members: transferParams([]byte(ours)), OneToken: true})), row.oneToken},
			{"decode alone", string(r.DecodeBody(DecodeEdit{})), row.body},
		} {
			if leg.got != leg.want {
				t.Errorf("%s, %s:\n got %s\nwant %s", row.name, leg.name, leg.got, leg.want)
			}
		}
	}
}

func TestRequest_BodiesWithSaltAndIDs(t *testing.T) {
	r := mustParse(t, Chat, `{"cache_salt":"theirs","return_token_ids":false,"n":3}`)
	got := string(r.PrefillBody(PrefillEdit{ReturnTokenIDs: true, CacheSalt: `o"urs`}))
	if want := `{"cache_salt":"o\"urs","return_token_ids":true,"n":1,"stream":false,"max_tokens":1}`; got != want {
		t.Errorf("prefill: got %s, want %s", got, want)
	}
	got = string(r.DecodeBody(DecodeEdit{CacheSalt: `o"urs`}))
	if want := `{"cache_salt":"o\"urs","return_token_ids":false,"n":3}`; got != want {
		t.Errorf("decode: got %s, want %s", got, want)
	}
}

func TestRequest_LegsWithPromptIDs(t *testing.T) {
	ids := []byte("[56,272]")
	r := mustParse(t, Text, `{ "prompt" : "The lease", "return_token_ids":false}`)
	for _, leg := range []struct{ name, got, want string }{
		{"prefill", string(r.PrefillBody(PrefillEdit{PromptIDs: ids, ReturnTokenIDs: true})), `{ "prompt" : [56,272], "return_token_ids":true,"stream":false,"max_tokens":1}`},
		{"decode", string(r.DecodeBody(DecodeEdit{PromptIDs: ids, ReturnTokenIDs: true})), `{ "prompt" : [56,272], "return_token_ids":true}`},
		{"decode for the client", string(r.DecodeBody(DecodeEdit{PromptIDs: ids})), `{ "prompt" : [56,272], "return_token_ids":false}`},
		{"decode as it came", string(r.DecodeBody(DecodeEdit{})), `{ "prompt" : "The lease", "return_token_ids":false}`},
	} {
		if leg.got != leg.want {
			t.Errorf("%s:\n got %s\nwant %s", leg.name, leg.got, leg.want)
		}
	}
	// A chat leg carries its ids in kv_transfer_params.
	r = mustParse(t, Chat, `{"messages":[]}`)
	if got, want := string(r.DecodeBody(DecodeEdit{PromptIDs: ids, ReturnTokenIDs: true})), `{"messages":[],"return_token_ids":true}`; got != want {
		t.Errorf("chat: got %s, want %s", got, want)
	}
}

func TestRequest_WholeDecodeBody(t *testing.T) {
	r := mustParse(t, Chat, `{"stream" : true,"stream_options":{"include_usage":true},"max_tokens":100,"min_tokens":5,"return_token_ids":null}`)
	got := string(r.DecodeBody(DecodeEdit{Whole: true, ReturnTokenIDs: true, Members: transferParams([]byte(`{"ours":1}`))}))
	if want := `{"stream" : false,"max_tokens":100,"min_tokens":5,"return_token_ids":true,"kv_transfer_params":{"ours":1}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if one, both := r.DecodeBody(DecodeEdit{OneToken: true}), r.DecodeBody(DecodeEdit{OneToken: true, Whole: true}); !bytes.Equal(one, both) {
		t.Errorf("one token, whole: got %s, want %s", both, one)
	}
}

// noTicket is what a prefill leg without a ticket carries to NIXL.
var noTicket = []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)

func TestRewrite_OneAllocation(t *testing.T) {
	count := func(size int) float64 {
		body := []byte(chatBody(size))
		r := mustParse(t, Chat, string(body))
		return testing.AllocsPerRun(20, func() {
			if _, err := ParseRequest(Chat, body); err != nil {
				t.Error(err)
			}
			r.PrefillBody(PrefillEdit{Members: transferParams(noTicket)})
		})
	}
	if few, many := count(2<<10), count(256<<10); few != many || many > 16 {
		t.Errorf("got %.0f allocations at 2 KB and %.0f at 256 KB, want the same small number", few, many)
	}
}

// expected is the reference for the rewrites: what is left of in, in order, with
// the given values in place and the rest of set at the end.
func expected(in []rawjsontest.Member, drop, replace string, set []rawjsontest.Member) (out []rawjsontest.Member) {
	listed := func(list, name string) bool { return slices.Contains(strings.Fields(list), name) }
	left := append([]rawjsontest.Member(nil), set...)
	for _, m := range in {
		if !listed(drop, m.Name) {
			for i := range left {
				if left[i].Name == m.Name {
					m.Raw = left[i].Raw
					left = append(left[:i:i], left[i+1:]...)
					break
				}
			}
			if listed(replace, m.Name) && string(m.Raw) != "null" {
				m.Raw = []byte("1")
			}
			out = append(out, m)
		}
	}
	return append(out, left...)
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(chatBody(300)))
	for _, body := range smuggled() {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRequestStripped(Chat, body)
		members, ok := rawjsontest.Members(body)
		kept, clean := withoutParams(members)
		if want := ok && readable(members, err == nil); (err == nil) != want {
			t.Fatalf("%q: got error %v, want accepted %t", body, err, want)
		}
		if err != nil {
			return
		}
		if _, err := ParseRequest(Text, body); (err == nil) != clean {
			t.Fatalf("%q: got error %v, want accepted %t", body, err, clean)
		}
		r.Disaggregable()
		r.Reusable()
		r.PromptScope()
		params := rawjsontest.Member{Name: "kv_transfer_params", Raw: []byte(`{"p":1}`)}
		one := []rawjsontest.Member{{Name: "stream", Raw: []byte("false")}, {Name: "max_tokens", Raw: []byte("1")}}
		const short = "stream_options min_tokens min_completion_tokens"
		rawjsontest.Compare(t, r.DecodeBody(DecodeEdit{}), kept)
		rawjsontest.Compare(t, r.DecodeBody(DecodeEdit{Members: transferParams(params.Raw)}), expected(kept, "", "", []rawjsontest.Member{params}))
		rawjsontest.Compare(t, r.DecodeBody(DecodeEdit{Members: transferParams(params.Raw), OneToken: true}),
			expected(kept, short, "max_completion_tokens", append(one, params)))
		rawjsontest.Compare(t, r.PrefillBody(PrefillEdit{Members: transferParams(params.Raw)}),
			expected(kept, short+" logprobs top_logprobs logprob_token_ids prompt_logprobs echo return_prompt_text return_token_ids",
				"max_completion_tokens n", append(one, params)))
	})
}

// withoutParams is the reference for takeTransferParams. clean is false if the
// client's params said anything.
func withoutParams(members []rawjsontest.Member) (kept []rawjsontest.Member, clean bool) {
	clean = true
	for _, m := range members {
		switch m.Name {
		case "kv_transfer_params", "ec_transfer_params":
			var fields map[string]json.RawMessage // stays nil for null
			clean = clean && json.Unmarshal(m.Raw, &fields) == nil && len(fields) == 0
			continue
		case "vllm_xargs":
			if holdsParams(m.Raw) {
				clean = false
				continue
			}
		}
		kept = append(kept, m)
	}
	return kept, clean
}

// readable is the reference for the types that a request must have. Go's decoder
// cannot tell an unpaired surrogate, so a model with one is accepted or not as it
// was; a table covers it.
func readable(members []rawjsontest.Member, accepted bool) bool {
	ok := true
	for _, m := range members {
		switch m.Name {
		case "stream":
			var value *bool
			ok = ok && json.Unmarshal(m.Raw, &value) == nil
		case "n":
			ok = ok && regexp.MustCompile(`^(0|-?[1-9][0-9]*|null)$`).Match(m.Raw)
		case "model":
			var name *string
			ok = ok && json.Unmarshal(m.Raw, &name) == nil && (name == nil || !strings.Contains(*name, "\ufffd") || accepted)
		}
	}
	return ok
}

// holdsParams looks for the forbidden keys in decoded JSON.
func holdsParams(raw []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	type level struct{ object, key bool }
	var stack []level
	for {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		top := len(stack) - 1
		isKey := top >= 0 && stack[top].object && stack[top].key
		if top >= 0 && token != json.Delim('}') && token != json.Delim(']') {
			stack[top].key = !stack[top].key
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, level{true, true})
		case json.Delim('['):
			stack = append(stack, level{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:top]
		}
		if isKey && (token == "kv_transfer_params" || token == "ec_transfer_params") {
			return true
		}
	}
}

// chatBody returns a chat request of about size bytes, with the escapes and
// non-ASCII text of real conversations.
func chatBody(size int) string {
	const line = `The lease of a block ends\nafter \"30 s\", caf\u00e9 or café; func f(x []byte) { return x[1:] }\n`
	var b strings.Builder
	b.WriteString(`{"model":"tiny","stream":true,"stream_options":{"include_usage":true},"temperature":0.7,"max_tokens":512,"messages":[{"role":"system","content":"short"}`)
	for b.Len() < size {
		b.WriteString(`,{"role":"user","content":"`)
		for range min(40, 1+(size-b.Len())/len(line)) {
			b.WriteString(line)
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`],"conversation_id":"c-1","seed":9007199254740993}`)
	return b.String()
}

func BenchmarkRewrite(b *testing.B) {
	for _, row := range []struct {
		name string
		size int
	}{{"2KB", 2 << 10}, {"256KB", 256 << 10}} {
		body := []byte(chatBody(row.size))
		params := noTicket
		b.Run(row.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				r, err := ParseRequest(Chat, body)
				if err != nil {
					b.Fatal(err)
				}
				r.Remove("conversation_id")
				r.PrefillBody(PrefillEdit{Members: transferParams(params)})
				r.DecodeBody(DecodeEdit{Members: transferParams(params)})
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	var ids strings.Builder
	for ids.Len() < 256<<10 {
		ids.WriteString("12345,")
	}
	for _, row := range []struct{ name, body string }{
		{"256KB-chat", chatBody(256 << 10)},
		{"256KB-ASCII", `{"prompt":"` + strings.Repeat("plain text, ", 256<<10/12) + `"}`},
		{"256KB-CJK", `{"prompt":"` + strings.Repeat("中文", 256<<10/6) + `"}`},
		{"256KB-ids", `{"prompt":[` + ids.String() + `1]}`},
	} {
		body := []byte(row.body)
		b.Run(row.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseRequest(Chat, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// transferParams is what a connector puts into a leg.
func transferParams(params []byte) []Member { return []Member{{"kv_transfer_params", params}} }
