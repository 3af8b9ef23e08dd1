package convcache_test

import (
	"strings"
	"testing"

	"carryover/convcache"
)

func TestChatHistory_RefusesWhatReadsTwoWays(t *testing.T) {
	nested := func(n int) string {
		return `[{"role":"user","content":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}]`
	}
	objects := func(n int) string {
		return `[{"role":"user","x":` + strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) + `}]`
	}
	mustChat(t, nil, nested(62)) // with the array and the message: 64 levels
	mustChat(t, nil, objects(62))
	for name, messages := range map[string]string{
		"65 levels of arrays":       nested(63),
		"65 levels of objects":      objects(63),
		"nothing":                   ``,
		"null":                      `null`,
		"an object":                 `{}`,
		"a message that is none":    `["hi"]`,
		"no role":                   `[{"content":"hi"}]`,
		"null role":                 `[{"role":null}]`,
		"role of another type":      `[{"role":1}]`,
		"byte order mark":           "\ufeff[]",
		"trailing bytes":            `[] []`,
		"trailing comma":            `[{"role":"user"},]`,
		"no end":                    `[{"role":"user"}`,
		"no comma":                  `[{"role":"user"}{"role":"user"}]`,
		"object without end":        `[{"role":"user"`,
		"member without colon":      `[{"role" "user"}]`,
		"member without value":      `[{"role":}]`,
		"member without comma":      `[{"role":"user" "x":1}]`,
		"member without name":       `[{1:2}]`,
		"comma before the end":      `[{"role":"user",}]`,
		"string without end":        `[{"role":"user`,
		"escape without end":        `[{"role":"user\`,
		"name without end":          `[{"role`,
		"duplicate name":            `[{"role":"user","role":"user"}]`,
		"duplicate name, escaped":   `[{"role":"user","r\u006fle":"user"}]`,
		"duplicate null":            `[{"role":"user","x":null,"x":null}]`,
		"duplicate deep in parts":   `[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]`,
		"duplicate in the unknown":  `[{"role":"user","x":{"a":1,"b":2,"a":1}}]`,
		"duplicate index of a call": `[{"role":"assistant","tool_calls":[{"index":0,"index":1}]}]`,
		"invalid UTF-8":             "[{\"role\":\"user\",\"content\":\"\xff\"}]",
		"UTF-8 of a surrogate":      "[{\"role\":\"user\",\"content\":\"\xed\xa0\x80\"}]",
		"lone high surrogate":       `[{"role":"user","content":"\ud834"}]`,
		"lone low surrogate":        `[{"role":"user","content":"\udd1e"}]`,
		"high then high":            `[{"role":"user","content":"\ud834\ud834"}]`,
		"high then other":           `[{"role":"user","content":"\ud834\u0041"}]`,
		"high then short escape":    `[{"role":"user","content":"\ud834\n"}]`,
		"high then broken escape":   `[{"role":"user","content":"\ud834\uzzzz"}]`,
		"escape of three digits":    `[{"role":"user","content":"\u041"}]`,
		"escape at the end":         `[{"role":"user","content":"\u04`,
		"unknown escape":            `[{"role":"user","content":"\x41"}]`,
		"control character":         "[{\"role\":\"user\",\"content\":\"a\nb\"}]",
		"NaN":                       `[{"role":"user","x":NaN}]`,
		"minus":                     `[{"role":"user","x":-}]`,
		"leading zero":              `[{"role":"user","x":01}]`,
		"point without digits":      `[{"role":"user","x":1.}]`,
		"exponent without digits":   `[{"role":"user","x":1e+}]`,
		"plus":                      `[{"role":"user","x":+1}]`,
		"half a word":               `[{"role":"user","x":tru}]`,
		"half of null":              `[{"role":"user","x":nul}]`,
		"half of false":             `[{"role":"user","x":fals}]`,
	} {
		if _, err := chatHistory(historyKey(t), nil, []byte(messages)); err == nil {
			t.Errorf("%s: got no error for %q", name, messages)
		} else if strings.Contains(err.Error(), "user") {
			t.Errorf("%s: the error quotes the request: %v", name, err)
		}
	}
}

func TestHistory_RefusesScope(t *testing.T) {
	for name, members := range map[string][]convcache.Member{
		"not JSON":                  scope("tools", `[`),
		"empty":                     scope("tools", ``),
		"trailing bytes":            scope("tools", `[]]`),
		"duplicate name":            scope("tools", `[{"a":1,"a":1}]`),
		"invalid UTF-8":             scope("tools", "\"\xff\""),
		"too deep":                  scope("tools", strings.Repeat("[", 65)+strings.Repeat("]", 65)),
		"member given twice":        scope("tools", `[]`, "tool_choice", `"auto"`, "tools", `[]`),
		"null given twice":          scope("tools", `null`, "tools", `[]`),
		"reply continues a message": scope("continue_final_message", `true`),
		"continued by a number":     scope("continue_final_message", `1`),
		"no generation prompt":      scope("add_generation_prompt", `false`),
		"continued by the template": scope("chat_template_kwargs", `{"continue_final_message":true}`),
		"no generation, by escape":  scope("chat_template_kwargs", `{"a":{},"add_generation_pr\u006fmpt":false}`),
		"switches of another kind":  scope("chat_template_kwargs", `["enable_thinking"]`),
	} {
		if _, err := chatHistory(historyKey(t), members, []byte(`[]`)); err == nil {
			t.Errorf("chat, %s: got no error", name)
		}
		if _, err := historyKey(t).TextHistory(members, ""); err == nil {
			t.Errorf("text, %s: got no error", name)
		}
	}
	mustChat(t, scope("tools", strings.Repeat("[", 64)+strings.Repeat("]", 64)), `[]`)
	mustChat(t, scope("continue_final_message", ` false`, "add_generation_prompt", `true`,
		"chat_template_kwargs", `{"enable_thinking":false,"x":{"add_generation_prompt":false}}`), `[]`)
	if _, err := historyKey(t).TextHistory(nil, "\xff"); err == nil {
		t.Error("a prompt of invalid UTF-8: got no error")
	}
}

func TestExtends_TextBorder(t *testing.T) {
	for name, tc := range map[string]struct {
		prompt, reply, appended string
		want                    bool
	}{
		"nothing appended":          {"once", " upon", "", true},
		"nothing, after a bracket":  {"once", " (", "", true},
		"space after a letter":      {"once", " upon", " a time", true},
		"line break after a letter": {"once", " upon", "\n\nQ:", true},
		"space after é":             {"once", " café", " a", true},
		"wide space after 漢":        {"once", " 漢", "\u3000字", true},
		"space after a digit":       {"once", " 42", " a", true},
		"letter after a letter":     {"once", " upon", "s", false},
		"digit after a digit":       {"once", " 42", "0", false},
		"bracket after a letter":    {"once", " upon", "(", false},
		"apostrophe":                {"once", " don", "'t", false},
		"space after a full stop":   {"once", " upon.", " A", false},
		"space after a space":       {"once", " upon ", " a", false},
		"letter after a space":      {"once", " upon ", "a", false},
		"space after a mark":        {"once", " e\u0301", " a", false},
		"zero width space":          {"once", " upon", "\u200b a", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := branch(mustText(t, nil, tc.prompt), convcache.Reply{Text: tc.reply})
			whole := tc.prompt + tc.reply + tc.appended
			if got := mustText(t, nil, whole).Extends(b); got != tc.want {
				t.Errorf("extends: got %v, want %v", got, tc.want)
			}
			if mustText(t, scope("add_special_tokens", "false"), whole).Extends(b) {
				t.Error("extends in another scope: got true")
			}
		})
	}
}

func TestExtends_TextOnlyByEqualBytes(t *testing.T) {
	b := branch(mustText(t, nil, "once"), convcache.Reply{Text: " upon"})
	if b.History.Covers != len("once upon") {
		t.Errorf("covers: got %d, want %d", b.History.Covers, len("once upon"))
	}
	moved := branch(mustText(t, nil, "once u"), convcache.Reply{Text: "pon"})
	if moved.History.Digest != b.History.Digest {
		t.Error("the border between prompt and reply counts, and must not: the next prompt does not show it")
	}
	for _, prompt := range []string{"", "once", "once upo", "Once upon a", "twice upon a", "once upom a", "nce upon a"} {
		if mustText(t, nil, prompt).Extends(b) {
			t.Errorf("%q extends %q", prompt, "once upon")
		}
	}
	weak, long := b, b
	weak.History.OK = false
	long.History.Covers = 1 << 40
	none := branch(mustText(t, nil, ""), convcache.Reply{})
	for name, b := range map[string]convcache.Branch{"weak": weak, "long": long, "empty": none} {
		if mustText(t, nil, "once upon").Extends(b) {
			t.Errorf("%s branch: got true", name)
		}
	}
}

func TestExtends_RoutesDoNotMeet(t *testing.T) {
	text := branch(mustText(t, nil, "ab"), convcache.Reply{Text: "c"})
	chat := branch(mustChat(t, nil, `[`+user+`]`), convcache.Reply{Content: "x"})
	echo := mustChat(t, nil, `[`+user+`,{"role":"assistant","content":"x"},`+user+`]`)
	chatAsText := chat
	chatAsText.History.Covers = 3
	if mustText(t, nil, "abc").Extends(chatAsText) || echo.Extends(text) {
		t.Error("chat and text extend each other")
	}
	if digest(t, nil, `[]`) == branch(mustText(t, nil, ""), convcache.Reply{}).History.Digest {
		t.Error("chat and text share a digest")
	}
}
