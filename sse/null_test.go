package sse

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
)

// A member that is null goes as any other does, and is absent for the observer.
func TestRelay_NullIsAbsent(t *testing.T) {
	const chunk = `{"choices":[{"a":"é"}]`
	for _, tc := range []struct{ name, input, want string }{
		{"at the end of a chunk", "data: " + chunk + `,"kv_transfer_params":null}`, "data: " + chunk + "}"},
		{"with CRLF", "data: " + chunk + `,"kv_transfer_params":null}` + "\r\n\r\n", "data: " + chunk + "}\r\n\r\n"},
		{"with lone CRs", "data: " + chunk + `,"kv_transfer_params":null}` + "\r\r", "data: " + chunk + "}\r\r"},
		{"without space after the colon", "data:" + chunk + `,"kv_transfer_params":null}`, "data:" + chunk + "}"},
		{"between other lines", ": c\nevent: x\ndata: " + chunk + `,"kv_transfer_params":null}` + "\r\nid: 1", ": c\nevent: x\ndata: " + chunk + "}\r\nid: 1"},
		{"on the second data line", "data: " + chunk + "\ndata: " + `,"kv_transfer_params":null}`, "data: " + chunk + "\ndata: }"},
		{"at the end of a second data line", "data: {\"a\":1,\ndata: \"choices\":[{}],\"kv_transfer_params\":null}", "data: {\"a\":1,\ndata: \"choices\":[{}]}"},
		{"first", `data: {"kv_transfer_params":null,"choices":[{}]}`, `data: {"choices":[{}]}`},
		{"with spaces", "data: " + chunk + ` , "kv_transfer_params" : null }`, "data: " + chunk + "  }"},
		{"with an escape in its name", "data: " + chunk + `,"kv_tran\u0073fer_params":null}`, "data: " + chunk + "}"},
		{"behind another member", "data: " + chunk + `,"system_fingerprint":"f","kv_transfer_params":null}`, "data: " + chunk + `,"system_fingerprint":"f"}`},
		{"twice", "data: " + chunk + `,"kv_transfer_params":null,"kv_transfer_params":null}`, "data: " + chunk + "}"},
		{"behind one that is not null", `data: {"kv_transfer_params":{"a":1},"choices":[{}],"kv_transfer_params":null}`, `data: {"choices":[{}]}`},
		{"behind one that is not null, in escapes", `data: {"kv_tran\u0073fer_params":{"a":1},"choices":[{}],"kv_transfer_params":null}`, `data: {"choices":[{}]}`},
		{"in a long event", `data: {"x":"` + strings.Repeat("x", 10000) + `","choices":[{}],"kv_transfer_params":null}`, `data: {"x":"` + strings.Repeat("x", 10000) + `","choices":[{}]}`},
		{"beside nothing of substance", `data: {"id":"x","choices":[],"kv_transfer_params":null}`, ""},
		{"alone", `data: {"kv_transfer_params":null}`, ""},

		{"in the list", `data: {"choices":[{"kv_transfer_params":null}]}`, `data: {"choices":[{"kv_transfer_params":null}]}`},
		{"of another name", "data: " + chunk + `,"KV_transfer_params":null}`, "data: " + chunk + `,"KV_transfer_params":null}`},
		{"in a list that is no object", `data: [[{}],"kv_transfer_params":null}`, `data: [[{}],"kv_transfer_params":null}`},
		{"in a string", `data: {"a":"}],\"kv_transfer_params\":null}"}`, `data: {"a":"}],\"kv_transfer_params\":null}"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.input, tc.want = ended(tc.input), ended(tc.want)
			// The event stands between two others, so that a wrong move shows in them too.
			before, after := "data: {\"choices\":[0]}\r\n\r\n", ": ping\n\ndata: {\"choices\":[7]}\n\ndata: [DONE]\n\n"
			want := before + tc.want + after
			for name, split := range map[string]func(io.Reader) io.Reader{
				"one read": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "byte by byte": iotest.OneByteReader,
			} {
				var out strings.Builder
				r := New(&out, nil, Config{Strip: params, Substance: []string{"choices", "usage"}, Observe: func(e Event) Verdict {
					if e.Member != nil {
						t.Errorf("%s: captured %q, want nothing", name, e.Member)
					}
					return Forward
				}})
				if err := r.Run(split(strings.NewReader(before + tc.input + after))); err != nil || out.String() != want {
					t.Errorf("%s: error %v, relayed\n got %q\nwant %q", name, err, out.String(), want)
				}
			}
		})
	}
}

// An event that has lost its null is changed, held, dropped and taken back as any other.
func TestRelay_EventsWithoutTheirNullFollowTheVerdict(t *testing.T) {
	event := func(word string) string {
		return fmt.Sprintf(`data: {"x":"%s","choices":[{"ids":[5]}],"kv_transfer_params":null}`+"\n\n", word)
	}
	shown := func(word string) string { return fmt.Sprintf(`data: {"x":"%s","choices":[{"ids":null}]}`+"\n\n", word) }
	for _, tc := range []struct{ name, input, want string }{
		{"forwarded", event("a") + event("b"), shown("a") + shown("b")},
		{"held", event("hold") + event("b"), shown("hold") + shown("b")},
		{"dropped", event("drop") + event("b"), shown("b")},
		{"superseded", event("hold") + event("super") + event("b"), shown("super") + shown("b")},
		{"stopped", event("a") + event("hold") + event("stop"), shown("a")},
	} {
		for _, size := range []int{1, 7, 100, 5000} {
			var out strings.Builder
			r := New(&out, nil, Config{Strip: params, Substance: []string{"choices"}, Observe: func(e Event) Verdict {
				at := bytes.Index(e.Data, []byte("[5]"))
				if !e.Replace(at, at+3, []byte("null")) || string(e.Shown()) != strings.Replace(string(e.Data), "[5]", "null", 1) {
					t.Errorf("%s: %q can't be changed", tc.name, e.Data)
				}
				return verdictOf(e.Data)
			}})
			if err := r.Run(&sized{from: tc.input, size: size}); out.String() != tc.want {
				t.Errorf("%s, reads of %d: %v, relayed\n got %q\nwant %q", tc.name, size, err, out.String(), tc.want)
			}
		}
	}
}

// sized is a reader of pieces of one size.
type sized struct {
	from string
	size int
}

func (s *sized) Read(p []byte) (int, error) {
	if s.from == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.size)], s.from)
	s.from = s.from[n:]
	return n, nil
}

// What a client gets of vLLM 0.33 is what the engine sent without the member, wherever reads begin and end.
func TestRelay_RecordedStreamsWithNullLoseTheMemberAlone(t *testing.T) {
	member := regexp.MustCompile(`,"kv_transfer_params":(null|\{.*\})\}`)
	streams := 0
	for name, stream := range recorded(t) {
		if !bytes.Contains(stream, []byte(`"kv_transfer_params":null}`)) {
			continue
		}
		streams++
		want := member.ReplaceAllString(string(stream), "}")
		var wantMember string
		if found := regexp.MustCompile(`"kv_transfer_params":(\{.*\})\}`).FindSubmatch(stream); found != nil {
			wantMember = string(found[1])
		}
		for at := range stream {
			var out strings.Builder
			captured := ""
			r := New(&out, nil, Config{Strip: params, Substance: []string{"choices", "usage", "error"}, Observe: func(e Event) Verdict {
				captured += string(e.Member)
				return Forward
			}})
			src := io.MultiReader(bytes.NewReader(stream[:at]), bytes.NewReader(stream[at:]))
			if err := r.Run(src); err != nil || out.String() != want || captured != wantMember {
				t.Fatalf("%s, cut at %d: error %v, captured %q, relayed\n got %q\nwant %q", name, at, err, captured, out.String(), want)
			}
		}
	}
	if streams < 5 {
		t.Errorf("%d recorded streams have null, want 5", streams)
	}
}
