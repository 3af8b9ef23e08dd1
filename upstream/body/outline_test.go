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
	const (
		system = `{"role":"system","content":"s"}`
		user   = `{"role":"user","content":"u"}`
		said   = `{"role":"assistant","content":"a"}`
	)
	chat := func(members, messages string) Prompt {
		return mustParse(t, Chat, `{"model":"m",`+members+`"messages":[`+messages+`]}`).Prompt()
	}
	text := func(prompt string) Prompt { return mustParse(t, Text, `{"model":"m","prompt":`+prompt+`}`).Prompt() }
	long := strings.Repeat("x", 3000)
	for name, row := range map[string]struct {
		was, now Prompt
		want     string
	}{
		"equal":                    {chat("", system+","+user), chat(`"temperature":1,"cache_salt":"s","include_reasoning":false,"tools":null,`, system+","+user), ""},
		"a message":                {chat("", system+","+user), chat("", system+","+said), "messages[1]"},
		"a message more":           {chat("", system), chat("", system+","+user), "messages[1]"},
		"a message less":           {chat("", system+","+user), chat("", system), "messages[1]"},
		"spelling":                 {chat("", user), chat("", strings.Replace(user, ":", ": ", 1)), "messages[0]"},
		"tools":                    {chat(`"tools":[{"a":1}],`, user), chat(`"tools":[{"a":2}],`, system), "tools"},
		"no tools":                 {chat(`"tools":[{"a":1}],`, user), chat("", user), "tools"},
		"a name in escapes":        {chat("", user), chat(`"t\u006fols":[{"b":1,"a":2}],`, user), "tools"},
		"guided":                   {chat("", user), chat(`"guided_chosen_by_the_client":{},`, user), "guided_"},
		"a text":                   {text(`"` + long + `"`), text(`"` + long[:2000] + "y" + long + `"`), "prompt.kib[1]"},
		"a text that goes on":      {text(`"` + long + `"`), text(`"` + long + long + `"`), "prompt.kib[2]"},
		"ids":                      {text(`[1,2` + strings.Repeat(",3", 1000) + `]`), text(`[2,2` + strings.Repeat(",3", 1000) + `]`), "prompt.kib[0]"},
		"text, and no text before": {chat("", user), text(`"` + long + `"`), "endpoint"},
	} {
		if got, differ := differing(row.was, row.now); got != row.want || differ != (row.want != "") {
			t.Errorf("%s: %q, want %q", name, got, row.want)
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
