package body

import (
	"fmt"
	"strings"
	"testing"
)

func TestPromptLength_OfTextPrompts(t *testing.T) {
	for body, want := range map[string]Length{
		`{"prompt":"four"}`: {Bytes: 4}, `{"prompt":"é\n\u00e9\ud83d\ude00\\"}`: {Bytes: 2 + 1 + 2 + 4 + 1}, `{"prompt":["ab", "cde"]}`: {Bytes: 5},
		`{"prompt":[1,2,3]}`: {IDs: 3}, `{"prompt":[ 128000 ]}`: {IDs: 1}, `{"prompt":[[1,2],[3]]}`: {IDs: 3},
		`{"prompt":""}`: {}, `{"prompt":[]}`: {}, `{"prompt":null}`: {}, `{"prompt":{"a":1}}`: {}, `{"model":"m"}`: {},
	} {
		if got := mustParse(t, Text, body).Prompt().Length(); got.Whole != want || got.Answered {
			t.Errorf("%s: got %+v, want %+v", body, got, want)
		}
	}
}

func TestPromptLength_OfMessages(t *testing.T) {
	const question, answer = `{"role":"user","content":"12345678"}`, `{"content":"1234","role":"assistant"}`
	for messages, want := range map[string]string{ // bytes of the whole and of the tail; whether there is an answer, and it is plain
		question: "8 8 false true", // question
		question + `,` + answer + `,{"role":"user","content":"12"}`:              "14 2 true true",   // follow-up
		question + `,` + answer + `,{"role":"tool","content":"123"},` + question: "23 11 true false", // tool results
		question + `,` + answer:               "12 0 true true", // ends with the assistant
		`{"role":"assistant","content":null}`: "0 0 true true",  // null content
		`{"role":"user","content":[{"type":"text","text":"123"},{"text":"45","type":"text"},"6"]}`:                                        "6 6 false true",  // parts
		`{"role":"user","content":[{"type":"refusal","refusal":"no."}]}`:                                                                  "3 3 false true",  // refusal
		`{"role":"assistant","tool_calls":[{"id":"call_123456789","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]}`: "10 0 true false", // tool call
		`{"role":"assistant","tool_calls":[{"function":{"arguments":{"a":1}}}]}`:                                                          "7 0 true false",  // tool call with an object
		`{"role":"assistant","reasoning":"12345","content":"1"}`:                                                                          "6 0 true false",  // reasoning
		`{"role":"assistant","reasoning_content":"12345","content":"1"}`:                                                                  "6 0 true false",  // older reasoning
		`{"role":"user","cont\u0065nt":"12"}`:                                                                                             "2 2 false true",  // spelled otherwise
		`{"role":"user","content":[{"type":"new","new":"12345"}]}`:                                                                        "7 7 false false", // unknown part
	} {
		l := mustParse(t, Chat, `{"messages":[`+messages+`]}`).Prompt().Length()
		if got := fmt.Sprint(l.Whole.Bytes, l.Tail.Bytes, l.Answered, l.Plain); got != want {
			t.Errorf("%s: got %s, want %s", messages, got, want)
		}
	}
}

func TestPromptLength_MembersBesideTheMessages(t *testing.T) {
	for member, want := range map[string]string{ // their bytes, and whether they are plain
		`"tools":[{"type":"function"}]`: "21 false", `"documents":[{"text":"a"}]`: "14 false", `"tools":null`: "0 true", `"max_tokens":7,"metadata":{"a":"bcdef"}`: "0 true",
		`"chat_template":"{{ messages }}"`: "0 false", `"truncate_prompt_tokens":5`: "0 false",
	} {
		l := mustParse(t, Chat, `{"messages":[{"role":"user","content":"1"}],`+member+`}`).Prompt().Length()
		if got := fmt.Sprint(l.Whole.Bytes-1, l.Plain); got != want || l.Tail.Bytes != 1 {
			t.Errorf("%s: got %s, a tail of %d, want %s", member, got, l.Tail.Bytes, want)
		}
	}
}

func TestPromptLength_OfMedia(t *testing.T) {
	encoded := func(bytes int) string { return strings.Repeat("A", bytes/3*4) }
	for _, row := range []struct {
		part string
		from int
		to   int // tokens
	}{
		{`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`, imageTokens, imageTokens},
		{`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + encoded(300_000) + `"}}`, imageTokens, imageTokens},
		{`{"type":"input_image","image_url":"https://example.com/a.png"}`, imageTokens, imageTokens},
		{`{"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}}`, videoTokens, videoTokens},
		{`{"type":"audio_url","audio_url":{"url":"https://example.com/a.mp3"}}`, 750, 750},
		{`{"type":"input_audio","input_audio":{"data":"` + encoded(320_000) + `","format":"wav"}}`, 245, 255},
		{`{"type":"input_audio","input_audio":{"format":"mp3","data":"` + encoded(80_000) + `"}}`, 245, 255},
		{`{"type":"audio_url","audio_url":{"url":"data:audio/wav;base64,` + encoded(320_000) + `"}}`, 245, 255},
		{`{"type":"text","text":"","image_url":null}`, 0, 0},
	} {
		got := mustParse(t, Chat, `{"messages":[{"role":"user","content":[`+row.part+`]}]}`).Prompt().Length()
		if tokens := got.Whole.Tokens(4); tokens < row.from || tokens > row.to || got.Whole != got.Tail || got.Plain == (row.from > 0) {
			t.Errorf("%.60s: got %+v, %d tokens, want %d to %d", row.part, got, tokens, row.from, row.to)
		}
	}
}

func TestLength_TokensAreRoundedDown(t *testing.T) {
	for _, row := range []struct {
		length Length
		ratio  float64
		want   int
	}{
		{Length{Bytes: 4096}, 4, 1024}, {Length{Bytes: 4095}, 4, 1023}, {Length{Bytes: 3}, 4, 0}, {Length{IDs: 7, Bytes: 8, Media: 5}, 2, 16},
	} {
		if got := row.length.Tokens(row.ratio); got != row.want {
			t.Errorf("%+v at %g: got %d, want %d", row.length, row.ratio, got, row.want)
		}
	}
}

func TestPromptLength_AllocatesNothing(t *testing.T) {
	r := mustParse(t, Chat, longChat())
	if n := testing.AllocsPerRun(20, func() { r.Prompt().Length() }); n > 0 {
		t.Errorf("got %g allocations, want none", n)
	}
}

// longChat is a body of 64 KiB: 32 turns, one with an image, and tools.
func longChat() string {
	var b strings.Builder
	b.WriteString(`{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"messages":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"https://e/a.png"}}]}`)
	for i := range 32 {
		_, _ = fmt.Fprintf(&b, `,{"role":"user","content":%q},{"role":"assistant","content":%q}`, strings.Repeat("word\n", 200), fmt.Sprint("answer ", i, strings.Repeat(" text", 200)))
	}
	b.WriteString(`]}`)
	return b.String()
}

func FuzzPromptLength(f *testing.F) {
	f.Add(true, longChat())
	f.Add(false, `{"prompt":["a",[1]]}`)
	f.Add(true, `{"messages":[{"role":"user","content":[{"input_audio":"\u00e9"}]},7,{"tool_calls":{"name":{"arguments":1}}}]}`)
	f.Fuzz(func(t *testing.T, chat bool, body string) {
		api := Text
		if chat {
			api = Chat
		}
		r, err := ParseRequest(api, []byte(body))
		if err != nil {
			return
		}
		l := r.Prompt().Length()
		if l.Whole.IDs > len(body) || l.Whole.Bytes < 0 || l.Whole.Bytes > len(body) || l.Whole.Media > len(body)*videoTokens {
			t.Errorf("%q: got %+v", body, l)
		}
		if l.Tail.Bytes > l.Whole.Bytes || l.Tail.Media > l.Whole.Media || l.Tail.IDs > l.Whole.IDs {
			t.Errorf("%q: the tail is longer than the whole: %+v", body, l)
		}
	})
}
