package outline_test

import (
	"testing"

	"carryover/server/outline"
	"carryover/upstream/body"
)

// Whatever clients send, an outline is made of it within its bounds, a request is as it was compared with itself, and a place has
// nothing of what was sent.
func FuzzOutline(f *testing.F) {
	f.Add(chat(toolsList, system, asked, called, answered, question), chat(toolsList, asked, reply, next))
	f.Add(`{"prompt":"abc"}`, `{"prompt":[1,2,3]}`)
	f.Add(`{"messages":[{"role":"assistant","content":null,"tool_calls":[]},[],5,{}]}`, `{"messages":{}}`)
	f.Add(`{"messages":[{"role":"user","role":"user"}],"guided_x":{}}`, `{"messages":null,"prompt":null,"tools":null}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		key := outline.NewKey()
		for _, api := range []body.API{body.Chat, body.Text} {
			before, err := body.ParseRequest(api, []byte(a))
			if err != nil {
				return
			}
			now, err := body.ParseRequest(api, []byte(b))
			if err != nil {
				return
			}
			o, p := key.Of(before), key.Of(now)
			if o.Bytes() > 48<<10 {
				t.Fatalf("%d bytes", o.Bytes())
			}
			for _, reply := range []outline.Reply{{}, {Calls: true, Reasoning: true}} {
				if d := outline.Compare(o, reply, p); !place.MatchString(d.Position) {
					t.Fatalf("place %q", d.Position)
				}
			}
			same, other := outline.Compare(o, outline.Reply{}, o), outline.Compare(o, outline.Reply{}, p)
			if other.Later(same) {
				t.Fatalf("%q is later than %q, where all is equal", other.Position, same.Position)
			}
		}
	})
}
