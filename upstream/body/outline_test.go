package body

import (
	"strings"
	"testing"
)

// differing names the first part in which two requests differ, and says whether there is one.
func differing(a, b Prompt) (part string, differ bool) {
	was, now := a.Outline(), b.Outline()
	for i := range max(len(was), len(now)) {
		if i == len(was) || i == len(now) || was[i] != now[i] {
			return b.api.PartName(i), true
		}
	}
	return "", false
}

func TestOutline_TellsWhereRequestsDiffer(t *testing.T) {
	const system, user, said = `{"role":"system","content":"s"}`, `{"role":"user","content":"u"}`, `{"role":"assistant","content":"a"}`
	chat := func(messages string) string { return `"messages":[` + messages + `]` }
	long, ids := strings.Repeat("x", 3000), strings.Repeat(",3", 1000)
	for _, row := range []struct{ was, now, want string }{ // members of two requests
		{chat(system + "," + user), `"temperature":1,"cache_salt":"s","include_reasoning":false,"tools":null,` + chat(system+","+user), ""},
		{chat(system + "," + user), chat(system + "," + said), "messages[1]"},
		{chat(system), chat(system + "," + user), "messages[1]"},
		{chat(system + "," + user), chat(system), "messages[1]"},
		{chat(user), chat(strings.Replace(user, ":", ": ", 1)), "messages[0]"}, // spelling
		{`"tools":[{"a":1}],` + chat(user), `"tools":[{"a":2}],` + chat(system), "tools"},
		{`"tools":[{"a":1}],` + chat(user), chat(user), "tools"},
		{chat(user), `"t\u006fols":[{"b":1,"a":2}],` + chat(user), "tools"},
		{chat(user), `"guided_chosen_by_the_client":{},` + chat(user), "guided_"},
		{`"prompt":"` + long + `"`, `"prompt":"` + long[:2000] + "y" + long + `"`, "prompt.kib[1]"},
		{`"prompt":"` + long + `"`, `"prompt":"` + long + long + `"`, "prompt.kib[2]"}, // which goes on
		{`"prompt":[1,2` + ids + `]`, `"prompt":[2,2` + ids + `]`, "prompt.kib[0]"},
		{chat(user), `"prompt":"` + long + `"`, "endpoint"},
	} {
		of := func(members string) Prompt {
			return mustParse(t, map[bool]API{true: Text, false: Chat}[strings.HasPrefix(members, `"prompt"`)], `{"model":"m",`+members+`}`).Prompt()
		}
		if got, differ := differing(of(row.was), of(row.now)); got != row.want || differ != (got != "") {
			t.Errorf("%.200s and %.200s: %q, want %q", row.was, row.now, got, row.want)
		}
	}
}

// Every member that shapes the prompt has a part of its own.
func TestOutline_HasEachMemberThatShapesThePrompt(t *testing.T) {
	none := mustParse(t, Chat, `{"messages":[]}`).Prompt()
	for name := range strings.FieldsSeq(chatMembers + " functions function_call suffix guided_regex") {
		if !shapesPrompt(name) {
			continue
		}
		got, _ := differing(none, mustParse(t, Chat, `{"messages":[],"`+name+`":0}`).Prompt())
		if want := strings.Replace(name, "guided_regex", "guided_", 1); got != want {
			t.Errorf("%s: %q differs", name, got)
		}
	}
}

// The APIs whose clients rewrite what they repeat have none, and what is behind the bound is not told apart.
func TestOutline_IsBounded(t *testing.T) {
	for api, body := range map[API]string{Messages: `{"messages":[{"role":"user","content":"x"}]}`, Responses: `{"input":"x"}`} {
		if got := mustParse(t, api, body).Prompt().Outline(); got != nil {
			t.Errorf("%s: %v", api.Path(), got)
		}
	}
	many := mustParse(t, Chat, `{"messages":[`+strings.Repeat(`{"role":"user"},`, 2*maxParts)+`{}]}`).Prompt()
	long := mustParse(t, Text, `{"prompt":"`+strings.Repeat("x", 2*maxParts*textPiece)+`"}`).Prompt()
	if a, b := len(many.Outline()), len(long.Outline()); a != maxParts || b != maxParts {
		t.Errorf("%d and %d parts, want %d", a, b, maxParts)
	}
}
