package convcache_test

import (
	"strings"
	"testing"

	"carryover/convcache"
)

func TestEligible_OnlyWhatAnHonestEchoRendersAlike(t *testing.T) {
	call := func(arguments string) convcache.Reply {
		return convcache.Reply{ToolCalls: []convcache.ToolCall{{ID: "c", Type: "function", Name: "f", Arguments: arguments}}}
	}
	chat := func(content string) convcache.Reply { return convcache.Reply{Content: content} }
	stop := convcache.ReplyFacts{FinishReason: "stop"}
	calls := convcache.ReplyFacts{FinishReason: "tool_calls"}
	for name, tc := range map[string]struct {
		reply convcache.Reply
		facts convcache.ReplyFacts
		want  string // empty: eligible
	}{
		"chat":                        {chat("hi"), stop, ""},
		"chat, cut by length":         {chat("hi"), convcache.ReplyFacts{FinishReason: "length"}, ""},
		"text":                        {convcache.Reply{Text: " upon a time\n"}, stop, ""},
		"tool call":                   {call(`{"a": 1}`), calls, ""},
		"content and tool call":       {convcache.Reply{Content: "so", ToolCalls: call(`{}`).ToolCalls}, calls, ""},
		"white space inside":          {chat("a \n b"), stop, ""},
		"angle brackets":              {chat("a < b > c, thinking"), stop, ""},
		"no finish reason":            {chat("hi"), convcache.ReplyFacts{}, convcache.WhyFinish},
		"content filter":              {chat("hi"), convcache.ReplyFacts{FinishReason: "content_filter"}, convcache.WhyFinish},
		"abort":                       {chat("hi"), convcache.ReplyFacts{FinishReason: "abort", StopReason: true}, convcache.WhyFinish},
		"stop string":                 {chat("hi"), convcache.ReplyFacts{FinishReason: "stop", StopReason: true}, convcache.WhyStopString},
		"reasoning":                   {chat("hi"), convcache.ReplyFacts{FinishReason: "stop", Reasoning: true}, convcache.WhyReasoning},
		"unparsed reasoning":          {chat("<think>so</think>hi"), stop, convcache.WhyReasoning},
		"unparsed, opened by prompt":  {chat("so\n</think>\n\nhi"), stop, convcache.WhyReasoning},
		"unparsed, Magistral":         {chat("[THINK]so[/THINK]hi"), stop, convcache.WhyReasoning},
		"empty":                       {convcache.Reply{}, stop, convcache.WhyEmpty},
		"as large as allowed":         {chat(strings.Repeat("a", 8<<20)), stop, ""},
		"too large":                   {chat(strings.Repeat("a", 8<<20+1)), stop, convcache.WhyTooLarge},
		"too large by arguments":      {call(`{"a": "` + strings.Repeat("a", 8<<20) + `"}`), calls, convcache.WhyTooLarge},
		"compact arguments":           {call(`{"a":1}`), calls, convcache.WhyToolArguments},
		"no arguments":                {call(``), calls, convcache.WhyToolArguments},
		"second call's arguments":     {convcache.Reply{ToolCalls: append(call(`{}`).ToolCalls, call(`{ }`).ToolCalls...)}, calls, convcache.WhyToolArguments},
		"replacement character":       {chat("hi \ufffd you"), stop, convcache.WhyUnicode},
		"replacement in text":         {convcache.Reply{Text: "\ufffd"}, stop, convcache.WhyUnicode},
		"replacement in a name":       {convcache.Reply{ToolCalls: []convcache.ToolCall{{ID: "c", Name: "f\ufffd", Arguments: "{}"}}}, calls, convcache.WhyUnicode},
		"invalid UTF-8":               {chat("hi \xff"), stop, convcache.WhyUnicode},
		"leading space":               {chat(" hi"), stop, convcache.WhyWhitespace},
		"trailing line break":         {chat("hi\n"), stop, convcache.WhyWhitespace},
		"trailing no-break space":     {chat("hi\u00a0"), stop, convcache.WhyWhitespace},
		"trailing unit separator":     {chat("hi\x1f"), stop, convcache.WhyWhitespace},
		"only white space":            {chat("\n"), stop, convcache.WhyWhitespace},
		"white space before the call": {convcache.Reply{Content: "\n\n", ToolCalls: call(`{}`).ToolCalls}, calls, convcache.WhyWhitespace},
	} {
		t.Run(name, func(t *testing.T) {
			why, ok := convcache.Eligible(tc.reply, tc.facts)
			if why != tc.want || ok != (tc.want == "") {
				t.Errorf("got %q, %v, want %q, %v", why, ok, tc.want, tc.want == "")
			}
		})
	}
}
