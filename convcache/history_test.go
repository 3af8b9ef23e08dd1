package convcache_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"carryover/convcache"
	"carryover/sse/rawjson"
)

// scope turns name, value, name, value into scope members.
func scope(pairs ...string) []convcache.Member {
	var members []convcache.Member
	for i := 0; i < len(pairs); i += 2 {
		members = append(members, convcache.Member{Name: pairs[i], Value: []byte(pairs[i+1])})
	}
	return members
}

// historyKey keys the digests of tests.
func historyKey(tb testing.TB) convcache.HistoryKey {
	tb.Helper()
	secret, err := convcache.NewSecret([]byte("a secret of this test"))
	if err != nil {
		tb.Fatal(err)
	}
	return secret.HistoryKey()
}

// chatHistory digests messages as they came.
func chatHistory(key convcache.HistoryKey, scope []convcache.Member, messages []byte) (convcache.History, error) {
	list, err := rawjson.ParseList(messages)
	if err != nil {
		return convcache.History{}, err
	}
	return key.ChatHistory(scope, &list)
}

func mustChat(tb testing.TB, scope []convcache.Member, messages string) convcache.History {
	tb.Helper()
	h, err := chatHistory(historyKey(tb), scope, []byte(messages))
	if err != nil {
		tb.Fatalf("chat history of %.200s: %v", messages, err)
	}
	return h
}

func mustText(tb testing.TB, scope []convcache.Member, prompt string) convcache.History {
	tb.Helper()
	h, err := historyKey(tb).TextHistory(scope, prompt)
	if err != nil {
		tb.Fatalf("text history of %q: %v", prompt, err)
	}
	return h
}

// digest returns the digest of a chat request, told by the turn that an empty reply would end.
func digest(tb testing.TB, scope []convcache.Member, messages string) convcache.Digest {
	tb.Helper()
	d, _ := mustChat(tb, scope, messages).After(convcache.Reply{})
	return d
}

// branch returns the branch that a turn leaves behind.
func branch(h convcache.History, r convcache.Reply) convcache.Branch {
	d, covers := h.After(r)
	return convcache.Branch{History: convcache.Covered{Digest: d, Covers: covers, OK: true}}
}

const user = `{"role":"user","content":"hi"}`

func TestExtends_FaithfulEcho(t *testing.T) {
	args := `{"city": "Paris"}`
	call := convcache.ToolCall{ID: "c1", Type: "function", Name: "get", Arguments: args}
	quoted := `"{\"city\": \"Paris\"}"`
	calls := `"tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":` + quoted + `}}]`
	for name, tc := range map[string]struct {
		reply convcache.Reply
		echo  string
	}{
		"plain":           {convcache.Reply{Content: "héllo 𝄞"}, `{"role":"assistant","content":"héllo 𝄞"}`},
		"other order":     {convcache.Reply{Content: "x"}, `{"content":"x","role":"assistant"}`},
		"escaped":         {convcache.Reply{Content: "hé/A𝄞"}, `{ "r\u006fle":"assistant", "content":"h\u00e9\/\u0041\uD834\udd1e" }`},
		"short escapes":   {convcache.Reply{Content: "a\b\f\n\r\t\"\\b"}, `{"role":"assistant","content":"a\b\f\n\r\t\"\\b"}`},
		"long escapes":    {convcache.Reply{Content: "a\b\f\n\r\t\"\\b"}, `{"role":"assistant","content":"a\u0008\u000c\u000A\u000d\u0009\u0022\u005cb"}`},
		"null members":    {convcache.Reply{Content: "x"}, `{"role":"assistant","content":"x","refusal":null,"audio":null,"tool_calls":null,"reasoning":null}`},
		"empty calls":     {convcache.Reply{Content: "x"}, `{"role":"assistant","content":"x","tool_calls":[ ]}`},
		"call, null":      {convcache.Reply{ToolCalls: []convcache.ToolCall{call}}, `{"role":"assistant","content":null,` + calls + `}`},
		"call, absent":    {convcache.Reply{ToolCalls: []convcache.ToolCall{call}}, `{"role":"assistant",` + calls + `}`},
		"call, empty":     {convcache.Reply{ToolCalls: []convcache.ToolCall{call}}, `{"role":"assistant","content":"",` + calls + `}`},
		"call, content":   {convcache.Reply{Content: "so", ToolCalls: []convcache.ToolCall{call}}, `{` + calls + `,"role":"assistant","content":"so"}`},
		"call with index": {convcache.Reply{ToolCalls: []convcache.ToolCall{call}}, `{"role":"assistant","tool_calls":[{"index":0,"function":{"arguments":` + quoted + `,"name":"get"},"type":"function","id":"c1"}]}`},
		"call, no type": {convcache.Reply{ToolCalls: []convcache.ToolCall{{ID: "c1", Name: "get", Arguments: args}}},
			`{"role":"assistant",` + calls + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			tools := scope("tools", `[{"type":"function"}]`)
			b := branch(mustChat(t, tools, `[`+user+`]`), tc.reply)
			if b.History.Covers != 2 {
				t.Errorf("covers: got %d, want 2", b.History.Covers)
			}
			if next := mustChat(t, tools, `[`+user+`,`+tc.echo+`,`+user+`]`); !next.Extends(b) {
				t.Errorf("extends: got false for the echo %s", tc.echo)
			}
			if next := mustChat(t, nil, `[`+user+`,`+tc.echo+`,`+user+`]`); next.Extends(b) {
				t.Error("extends: got true in another scope")
			}
		})
	}
}

func TestExtends_AnotherEchoIsAnotherHistory(t *testing.T) {
	call := convcache.ToolCall{ID: "c1", Type: "function", Name: "get", Arguments: "{}"}
	withCall := convcache.Reply{ToolCalls: []convcache.ToolCall{call}}
	plain := convcache.Reply{Content: "x"}
	for name, tc := range map[string]struct {
		reply convcache.Reply
		echo  string
	}{
		"other content":       {plain, `{"role":"assistant","content":"y"}`},
		"longer content":      {plain, `{"role":"assistant","content":"x "}`},
		"parts":               {plain, `{"role":"assistant","content":[{"type":"text","text":"x"}]}`},
		"other role":          {plain, `{"role":"user","content":"x"}`},
		"named":               {plain, `{"role":"assistant","content":"x","name":"bob"}`},
		"reasoning":           {plain, `{"role":"assistant","content":"x","reasoning_content":"so"}`},
		"unknown member":      {plain, `{"role":"assistant","content":"x","prefix":true}`},
		"content null":        {plain, `{"role":"assistant","content":null}`},
		"content gone":        {withCall, `{"role":"assistant"}`},
		"nested null":         {withCall, `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":"{}"},"x":null}]}`},
		"index is a string":   {withCall, `{"role":"assistant","tool_calls":[{"index":"0","id":"c1","type":"function","function":{"name":"get","arguments":"{}"}}]}`},
		"index in function":   {withCall, `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"index":0,"name":"get","arguments":"{}"}}]}`},
		"other id":            {withCall, `{"role":"assistant","tool_calls":[{"id":"c2","type":"function","function":{"name":"get","arguments":"{}"}}]}`},
		"other name":          {withCall, `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"set","arguments":"{}"}}]}`},
		"other arguments":     {withCall, `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":"{ }"}}]}`},
		"arguments an object": {withCall, `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":{}}}]}`},
		"two calls":           {withCall, `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":"{}"}},{"id":"c1","type":"function","function":{"name":"get","arguments":"{}"}}]}`},
		"space for content":   {withCall, `{"role":"assistant","content":" ","tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":"{}"}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := branch(mustChat(t, nil, `[`+user+`]`), tc.reply)
			if next := mustChat(t, nil, `[`+user+`,`+tc.echo+`,`+user+`]`); next.Extends(b) {
				t.Errorf("extends: got true for the echo %s", tc.echo)
			}
		})
	}
}

func TestExtends_OnlyContinuations(t *testing.T) {
	echo := `{"role":"assistant","content":"x"}`
	b := branch(mustChat(t, nil, `[`+user+`]`), convcache.Reply{Content: "x"})
	for name, tc := range map[string]struct {
		messages string
		want     bool
	}{
		"one message more":        {user + `,` + echo + `,` + user, true},
		"many messages more":      {user + `,` + echo + `,` + user + `,` + echo + `,` + user, true},
		"nothing follows":         {user + `,` + echo, false},
		"regenerated":             {user, false},
		"no messages":             {``, false},
		"message before":          {user + `,` + user + `,` + echo + `,` + user, false},
		"question edited":         {`{"role":"user","content":"ho"},` + echo + `,` + user, false},
		"question in parts":       {`{"role":"user","content":[{"type":"text","text":"hi"}]},` + echo + `,` + user, false},
		"echo first":              {echo + `,` + user + `,` + user, false},
		"later same text":         {user + `,` + user + `,` + echo, false},
		"system message inserted": {`{"role":"system","content":""},` + user + `,` + echo + `,` + user, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := mustChat(t, nil, `[`+tc.messages+`]`)
			if got := h.Extends(b); got != tc.want {
				t.Errorf("extends: got %v, want %v", got, tc.want)
			}
		})
	}
	next := mustChat(t, nil, `[`+user+`,`+echo+`,`+user+`]`)
	weak, moved, none := b, b, b
	weak.History.OK = false
	moved.History.Covers = 1
	none.History.Covers = 0
	for name, b := range map[string]convcache.Branch{
		"history rules did not hold": weak, "covers the question only": moved, "covers nothing": none, "zero": {},
	} {
		if next.Extends(b) {
			t.Errorf("extends a branch that %s: got true", name)
		}
	}
	if (convcache.History{}).Extends(b) {
		t.Error("the zero history extends a branch")
	}
	if d, covers := (convcache.History{}).After(convcache.Reply{Content: "x"}); d != (convcache.Digest{}) || covers != 0 {
		t.Errorf("after of the zero history: got %x, %d, want zero", d, covers)
	}
}

func TestExtends_EveryEarlierTurn(t *testing.T) {
	var messages []string
	var branches []convcache.Branch
	for n := range 20 {
		messages = append(messages, fmt.Sprintf(`{"role":"user","content":"q%d"}`, n))
		h := mustChat(t, nil, `[`+strings.Join(messages, ",")+`]`)
		for i, b := range branches {
			if !h.Extends(b) {
				t.Errorf("turn %d does not extend turn %d", n, i)
			}
		}
		branches = append(branches, branch(h, convcache.Reply{Content: "a"}))
		messages = append(messages, `{"role":"assistant","content":"a"}`)
	}
}

func TestChatHistory_ToolTurn(t *testing.T) {
	asked := `{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	result := `{"role":"tool","tool_call_id":"c","content":"42"}`
	b := branch(mustChat(t, nil, `[`+user+`,`+asked+`,`+result+`]`), convcache.Reply{Content: "it is 42"})
	next := func(result string) convcache.History {
		return mustChat(t, nil, `[`+user+`,`+asked+`,`+result+`,{"role":"assistant","content":"it is 42"},`+user+`]`)
	}
	if !next(`{"tool_call_id":"c","content":"42","role":"tool"}`).Extends(b) {
		t.Error("a faithful echo of a tool turn is not recognised")
	}
	if next(`{"role":"tool","tool_call_id":"d","content":"42"}`).Extends(b) {
		t.Error("another tool_call_id is taken for the same")
	}
}

func TestChatHistory_ScopeCounts(t *testing.T) {
	base := scope("tools", `[{"type":"function","function":{"name":"f","parameters":{"a":1,"b":2}}}]`, "tool_choice", `"auto"`)
	want := digest(t, base, `[`+user+`]`)
	reordered := slices.Clone(base)
	slices.Reverse(reordered)
	same := map[string][]convcache.Member{
		"other order of members": reordered,
		"white space":            scope("tool_choice", ` "auto" `, "tools", "[ {\"type\" :\"function\",\n\t\"function\":{\"name\":\"f\",\"parameters\":{\"a\":1,\"b\":2}}} ]\r"),
		"escapes":                scope("tool_choice", `"\u0061uto"`, "tools", `[{"t\u0079pe":"function","function":{"name":"\u0066","parameters":{"a":1,"b":2}}}]`),
		"null members":           append(scope("documents", "null", "chat_template", " null"), base...),
	}
	for name, s := range same {
		if digest(t, s, `[`+user+`]`) != want {
			t.Errorf("%s: got another digest", name)
		}
	}
	other := map[string][]convcache.Member{
		"member order in a schema": scope("tool_choice", `"auto"`, "tools", `[{"type":"function","function":{"name":"f","parameters":{"b":2,"a":1}}}]`),
		"member order in a tool":   scope("tool_choice", `"auto"`, "tools", `[{"function":{"name":"f","parameters":{"a":1,"b":2}},"type":"function"}]`),
		"number spelled otherwise": scope("tool_choice", `"auto"`, "tools", `[{"type":"function","function":{"name":"f","parameters":{"a":1.0,"b":2}}}]`),
		"nested null":              scope("tool_choice", `"auto"`, "tools", `[{"type":"function","function":{"name":"f","parameters":{"a":1,"b":2},"strict":null}}]`),
		"member gone":              base[:1],
		"member more":              append(scope("reasoning_effort", `"low"`), base...),
		"values swapped":           scope("tools", string(base[1].Value), "tool_choice", string(base[0].Value)),
		"renamed":                  scope("tools", string(base[0].Value), "tool_choicf", `"auto"`),
		"false for null":           append(scope("documents", "false"), base...),
	}
	for name, s := range other {
		if digest(t, s, `[`+user+`]`) == want {
			t.Errorf("%s: got the same digest", name)
		}
	}
	if a, b := scope("ab", `"c"`), scope("a", `"bc"`); digest(t, a, `[]`) == digest(t, b, `[]`) {
		t.Error("name and value run into each other")
	}
}

func TestChatHistory_MessagesByValueNotSpelling(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"white space":             {`[{"role":"user","content":"a"}]`, " [ {\t\"role\" :\n\"user\" , \"content\":\"a\"\r} ] ", true},
		"content part order":      {`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,","detail":"low"}}]}]`, `[{"role":"user","content":[{"image_url":{"detail":"low","url":"data:,"},"type":"image_url"}]}]`, true},
		"order of parts":          {`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`, `[{"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"a"}]}]`, false},
		"absent and null":         {`[{"role":"user"}]`, `[{"role":"user","content":null}]`, true},
		"absent and empty":        {`[{"role":"user"}]`, `[{"role":"user","content":""}]`, false},
		"user with calls":         {`[{"role":"user","content":"","tool_calls":[1]}]`, `[{"role":"user","tool_calls":[1]}]`, false},
		"number and string":       {`[{"role":"user","content":1}]`, `[{"role":"user","content":"1"}]`, false},
		"number spelling":         {`[{"role":"user","x":1}]`, `[{"role":"user","x":1.0}]`, false},
		"exponent spelling":       {`[{"role":"user","x":1e2}]`, `[{"role":"user","x":1E2}]`, false},
		"true and false":          {`[{"role":"user","x":true}]`, `[{"role":"user","x":false}]`, false},
		"empty array and object":  {`[{"role":"user","x":[]}]`, `[{"role":"user","x":{}}]`, false},
		"nesting":                 {`[{"role":"user","x":[[1],2]}]`, `[{"role":"user","x":[[1,2]]}]`, false},
		"string and number array": {`[{"role":"user","x":["a","b"]}]`, `[{"role":"user","x":["ab"]}]`, false},
		"unknown member's order":  {`[{"role":"user","x":{"a":1,"b":2}}]`, `[{"role":"user","x":{"b":2,"a":1}}]`, false},
		"object arguments' order": {`[{"role":"assistant","tool_calls":[{"function":{"arguments":{"a":1,"b":2}}}]}]`, `[{"role":"assistant","tool_calls":[{"function":{"arguments":{"b":2,"a":1}}}]}]`, false},
		"arguments as spelled":    {`[{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\":1}"}}]}]`, `[{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\": 1}"}}]}]`, false},
		"split differently":       {`[{"role":"user","content":"a"},{"role":"user","content":"b"}]`, `[{"role":"user","content":"ab"}]`, false},
		"order of messages":       {`[{"role":"user","content":"a"},{"role":"user","content":"b"}]`, `[{"role":"user","content":"b"},{"role":"user","content":"a"}]`, false},
		"normal forms differ":     {`[{"role":"user","content":"é"}]`, `[{"role":"user","content":"e\u0301"}]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if same := digest(t, nil, tc.a) == digest(t, nil, tc.b); same != tc.same {
				t.Errorf("same digest: got %v, want %v for %s and %s", same, tc.same, tc.a, tc.b)
			}
		})
	}
}

func TestHistory_HasAssistantByRole(t *testing.T) {
	for messages, want := range map[string]bool{
		`[]`:                                     false,
		`[{"role":"user"}]`:                      false,
		`[{"role":"Assistant"}]`:                 false,
		`[{"role":"assist\u0061nt"}]`:            true,
		`[{"role":"assistant"},{"role":"user"}]`: true,
	} {
		if got := mustChat(t, nil, messages).HasAssistant(); got != want {
			t.Errorf("%s: got %v, want %v", messages, got, want)
		}
	}
	if !mustText(t, nil, "").HasAssistant() {
		t.Error("text: got false, want true")
	}
	if (convcache.History{}).HasAssistant() {
		t.Error("zero: got true, want false")
	}
}

// The digests are a wire format: replicas of one version and the next must agree on them.
func TestHistory_DigestsAreFixed(t *testing.T) {
	members := scope("tools", `[{"a":1}]`, "documents", "null")
	chat, _ := mustChat(t, members, `[`+user+`]`).After(convcache.Reply{Content: "x"})
	text, _ := mustText(t, members, "once ").After(convcache.Reply{Text: "upon"})
	const wantChat = "460f89d24ef85790f009e2af97a4c9ec600a0f2ac57ed2e30782fee36c24ce21"
	const wantText = "61975cfc8a4b1ecdff5062e82f98c8c6d3346e9d246d0a3f86fa903761dfed7a"
	if got := fmt.Sprintf("%x", chat); got != wantChat {
		t.Errorf("chat: got %s, want %s", got, wantChat)
	}
	if got := fmt.Sprintf("%x", text); got != wantText {
		t.Errorf("text: got %s, want %s", got, wantText)
	}
}
