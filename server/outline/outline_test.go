package outline_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"carryover/server/outline"
	"carryover/upstream/body"
)

// place is what a difference may be called: nothing that a client has chosen, and one token of a header's value.
var place = regexp.MustCompile(`^(endpoint|[a-z_]+|prompt\.kib\[\d+\]|messages\[\d+\]\.[a-z_]+)$`)

func parse(tb testing.TB, api body.API, raw string) *body.Request {
	tb.Helper()
	req, err := body.ParseRequest(api, []byte(raw))
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

// The history of these tests, and what a client makes of it for the next turn.
const (
	system    = `{"role":"system","content":"Today is Monday."}`
	asked     = `{"role":"user","content":"first"}`
	called    = `{"role":"assistant","content":null,"reasoning":"because","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{\"a\": 1}"}}]}`
	answered  = `{"role":"tool","tool_call_id":"c1","content":"42"}`
	question  = `{"role":"user","name":"ada","content":"second"}`
	reply     = `{"role":"assistant","content":"third"}`
	next      = `{"role":"user","content":"fourth"}`
	toolsList = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`
)

func chat(members string, messages ...string) string {
	if members != "" {
		members += ","
	}
	return `{"model":"m",` + members + `"messages":[` + strings.Join(messages, ",") + `]}`
}

func TestCompare_NamesTheFirstPositionThatDiffers(t *testing.T) {
	before := chat(toolsList, system, asked, called, answered, question)
	faithful := []string{system, asked, called, answered, question, reply, next}
	with := func(at int, message string) string {
		all := append([]string{}, faithful...)
		all[at] = message
		return chat(toolsList, all...)
	}
	without := func(from, n int) string {
		return chat(toolsList, append(append([]string{}, faithful[:from]...), faithful[from+n:]...)...)
	}
	for name, tc := range map[string]struct {
		now   string
		reply outline.Reply
		want  string
	}{
		"a date in the system prompt":      {now: with(0, strings.Replace(system, "Monday", "Tuesday", 1)), want: "messages[0].content"},
		"another role":                     {now: with(0, strings.Replace(system, "system", "developer", 1)), want: "messages[0].role"},
		"a name":                           {now: with(1, `{"role":"user","name":"bob","content":"first"}`), want: "messages[1].name"},
		"a name dropped":                   {now: with(4, `{"role":"user","content":"second"}`), want: "messages[4].name"},
		"arguments printed anew":           {now: with(2, strings.Replace(called, `\": 1`, `\":1`, 1)), want: "messages[2].tool_calls"},
		"tool calls dropped":               {now: with(2, `{"role":"assistant","content":null,"reasoning":"because"}`), want: "messages[2].tool_calls_missing"},
		"reasoning dropped":                {now: with(2, strings.Replace(called, `"reasoning":"because",`, "", 1)), want: "messages[2].reasoning_missing"},
		"reasoning changed":                {now: with(2, strings.Replace(called, "because", "since", 1)), want: "messages[2].reasoning"},
		"the result of another call":       {now: with(3, strings.Replace(answered, "c1", "c2", 1)), want: "messages[3].tool_call_id"},
		"an unknown member":                {now: with(4, strings.Replace(question, `"name"`, `"weight":1,"name"`, 1)), want: "messages[4].other"},
		"a message that is none":           {now: with(4, `5`), want: "messages[4].role"},
		"the oldest dropped":               {now: without(1, 1), want: "messages[1].removed"},
		"several dropped":                  {now: without(0, 3), want: "messages[0].removed"},
		"one put in front":                 {now: chat(toolsList, append([]string{system}, faithful...)...), want: "messages[1].inserted"},
		"cut behind the question":          {now: chat(toolsList, faithful[:5]...), want: "messages[5].removed"},
		"cut before the question":          {now: chat(toolsList, faithful[:4]...), want: "messages[4].removed"},
		"no reply but a question":          {now: without(5, 1), want: "messages[5].role"},
		"another reply":                    {now: with(5, reply), want: "messages[5].content"},
		"a reply without its reasoning":    {now: with(5, reply), reply: outline.Reply{Reasoning: true}, want: "messages[5].reasoning_missing"},
		"a reply without its tool calls":   {now: with(5, reply), reply: outline.Reply{Calls: true}, want: "messages[5].tool_calls_missing"},
		"a reply with calls, printed anew": {now: with(5, called), reply: outline.Reply{Calls: true}, want: "messages[5].tool_calls"},
		"tools in another order": {
			now:  chat(`"tools":[{"type":"function","function":{"name":"g"}},{"type":"function","function":{"name":"f"}}]`, faithful...),
			want: "tools",
		},
		"tools dropped":             {now: chat("", faithful...), want: "tools"},
		"template arguments":        {now: chat(toolsList+`,"chat_template_kwargs":{"enable_thinking":false}`, faithful...), want: "chat_template_kwargs"},
		"a constraint by a name":    {now: chat(toolsList+`,"guided_hunter2":"x"`, faithful...), want: "guided_"},
		"no messages":               {now: `{"model":"m",` + toolsList + `}`, want: "messages[0].removed"},
		"messages that are no list": {now: `{"model":"m",` + toolsList + `,"messages":"x"}`, want: "messages[0].removed"},
	} {
		t.Run(name, func(t *testing.T) {
			key := outline.NewKey()
			d := outline.Compare(key.Of(parse(t, body.Chat, before)), tc.reply, key.Of(parse(t, body.Chat, tc.now)))
			if d.Position != tc.want || d.How == "" {
				t.Errorf("got %q (%s), want %q", d.Position, d.How, tc.want)
			}
			if !place.MatchString(d.Position) {
				t.Errorf("got %q, which is no place", d.Position)
			}
		})
	}
}

func TestCompare_WhatTemplatesDoNotPrintIsNoDifference(t *testing.T) {
	key := outline.NewKey()
	before := key.Of(parse(t, body.Chat, chat(`"tool_choice":null`, asked, reply, question)))
	now := key.Of(parse(t, body.Chat, chat("",
		`{"content":"first","role":"user"}`, `{"role":"assistant","content":"third","tool_calls":[],"refusal":null,"reasoning":""}`, question, reply, next)))
	if d := outline.Compare(before, outline.Reply{}, now); d.Position != "messages[3].content" {
		t.Errorf("got %q, want the reply, which is all that may differ", d.Position)
	}
}

func TestCompare_TextDiffersFromAKiBOn(t *testing.T) {
	key := outline.NewKey()
	text := func(prompt string) *outline.Outline {
		return key.Of(parse(t, body.Text, `{"model":"m","prompt":"`+prompt+`"}`))
	}
	long := strings.Repeat("0123456789abcdef", 5*64)
	for name, tc := range map[string]struct{ now, want string }{
		"at the beginning":         {"X" + long[1:] + " and on", "prompt.kib[0]"},
		"in the third KiB":         {long[:2500] + "X" + long[2501:] + " and on", "prompt.kib[2]"},
		"cut":                      {long[:3000], "prompt.kib[2]"},
		"behind all that was sent": {long + " and on", "prompt.kib[5]"},
	} {
		if d := outline.Compare(text(long), outline.Reply{}, text(tc.now)); d.Position != tc.want {
			t.Errorf("%s: got %q, want %q", name, d.Position, tc.want)
		}
	}
	chats := key.Of(parse(t, body.Chat, chat("", asked)))
	if d := outline.Compare(text(long), outline.Reply{}, chats); d.Position != "endpoint" {
		t.Errorf("a chat after a text: got %q", d.Position)
	}
}

func TestCompare_HashesOfAnotherKeyAreOthers(t *testing.T) {
	req := parse(t, body.Chat, chat("", asked, reply))
	if d := outline.Compare(outline.NewKey().Of(req), outline.Reply{}, outline.NewKey().Of(req)); d.Position != "messages[0].role" {
		t.Errorf("got %q: the key does not count", d.Position)
	}
}

func TestOf_IsBounded(t *testing.T) {
	messages := make([]string, 3000)
	for i := range messages {
		messages[i] = fmt.Sprintf(`{"role":"user","content":"%d"}`, i)
	}
	key := outline.NewKey()
	before := key.Of(parse(t, body.Chat, chat("", messages...)))
	if n := before.Bytes(); n > 40<<10 {
		t.Errorf("3,000 messages take %d bytes", n)
	}
	messages[2500] = asked
	if d := outline.Compare(before, outline.Reply{}, key.Of(parse(t, body.Chat, chat("", messages...)))); d.Position != "messages[512].later" {
		t.Errorf("got %q", d.Position)
	}
	text := key.Of(parse(t, body.Text, `{"prompt":"`+strings.Repeat("x", 8<<20)+`"}`))
	if n := text.Bytes(); n > 40<<10 {
		t.Errorf("a prompt of 8 MiB takes %d bytes", n)
	}
	var guided strings.Builder
	for i := range 200 {
		fmt.Fprintf(&guided, `"guided_%0200d":1,`, i)
	}
	if n := key.Of(parse(t, body.Chat, `{`+guided.String()+`"messages":[]}`)).Bytes(); n > 1<<10 {
		t.Errorf("200 members with names of a client's own take %d bytes", n)
	}
}

// longChat is a chat of about so many bytes, in messages of 500 bytes with the escapes of prose and code.
func longChat(size int) string {
	line := strings.Repeat(`The blocks of a turn are held until the next one reads them,\n\tor until \"nobody\" does. `, 6)
	var messages []string
	for n := 0; n < size; n += len(line) {
		messages = append(messages, fmt.Sprintf(`{"role":"%s","content":"%s"}`, []string{"user", "assistant"}[len(messages)%2], line))
	}
	return chat(toolsList, messages...)
}

func BenchmarkOf(b *testing.B) {
	key := outline.NewKey()
	for _, size := range []int{4 << 10, 64 << 10, 200 << 10} {
		for _, api := range []body.API{body.Chat, body.Text} {
			text := longChat(size)
			if api == body.Text {
				text = `{"prompt":"` + strings.Repeat("0123456789abcdef", size/16) + `"}`
			}
			req := parse(b, api, text)
			b.Run(fmt.Sprintf("%s/%dKiB", strings.TrimPrefix(api.Path(), "/v1/"), size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					key.Of(req)
				}
			})
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	key := outline.NewKey()
	before, now := key.Of(parse(b, body.Chat, longChat(200<<10))), key.Of(parse(b, body.Chat, strings.Replace(longChat(200<<10), "The", "A", 1)))
	for b.Loop() {
		outline.Compare(before, outline.Reply{}, now)
	}
}
