package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"carryover/server"
	"carryover/upstream/vllmsim"
)

// A conversation of four turns with reasoning and a tool call, and the ways in which clients and front ends rewrite it.

// rewriting is one of them: what becomes of the messages and members of the fifth turn.
type rewriting struct {
	name    string
	change  func(messages []json.RawMessage, members map[string]any) []json.RawMessage
	differs string
}

// The places of the talk's messages.
const (
	atSystem, atAsked, atSaid, atAskedTool, atCalled, atFound, atTold, atThink, atThought = 0, 1, 2, 3, 4, 5, 6, 7, 8
)

// printedAnew is a rewriting that the proof need not see.
const printedAnew = "arguments of a tool call printed anew"

func rewritings() []rewriting {
	put := func(at int, edit func(m map[string]any)) func([]json.RawMessage, map[string]any) []json.RawMessage {
		return func(messages []json.RawMessage, _ map[string]any) []json.RawMessage {
			var m map[string]any
			_ = json.Unmarshal(messages[at], &m) // they are ours
			edit(m)
			messages[at] = encode(m)
			return messages
		}
	}
	set := func(name string, value any) func(m map[string]any) {
		return func(m map[string]any) { m[name] = value }
	}
	printed := func(from, to string) func([]json.RawMessage, map[string]any) []json.RawMessage {
		return func(messages []json.RawMessage, _ map[string]any) []json.RawMessage {
			messages[atCalled] = bytes.Replace(messages[atCalled], []byte(from), []byte(to), 1)
			return messages
		}
	}
	return []rewriting{
		{"a date in the system prompt", put(atSystem, set("content", "Today is Tuesday. "+longText(50))), "messages[0]"},
		{"a question edited", put(atAsked, set("content", "Something else.")), "messages[1]"},
		{"an answer edited", put(atSaid, set("content", "Something else.")), "messages[2]"},
		{"another role", put(atAskedTool, set("role", "developer")), "messages[3]"},
		{printedAnew, printed(`\"b\": 1`, `\"b\":1`), "messages[4]"},
		{"arguments of a tool call edited", printed(`\"b\": 1`, `\"b\": 5`), "messages[4]"},
		{"a tool call dropped", put(atCalled, func(m map[string]any) { delete(m, "tool_calls"); m["content"] = "" }), "messages[4]"},
		{"the context trimmed", func(messages []json.RawMessage, _ map[string]any) []json.RawMessage {
			return append(messages[:atAsked:atAsked], messages[atAskedTool:]...)
		}, "messages[1]"},
		{"tools in another order", func(messages []json.RawMessage, members map[string]any) []json.RawMessage {
			members["tools"] = json.RawMessage(`[` + tool("find") + `,` + tool("lookup") + `]`)
			return messages
		}, "tools"},
		{"the last answer edited", put(atThought, func(m map[string]any) { m["content"] = "Edited. " + m["content"].(string) }), "messages[8]"},
		{"reasoning of the last answer dropped", put(atThought, func(m map[string]any) { delete(m, "reasoning") }), "messages[8]"},
	}
}

func tool(name string) string {
	return `{"type":"function","function":{"name":"` + name + `","parameters":{"type":"object"}}}`
}

// rewritten is the whole program with a talk that is rewritten.
type rewritten struct {
	*rig
	stream bool
}

func startRewritten(t *testing.T, stream bool) *rewritten {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	w := &rewritten{stream: stream}
	w.rig = startRig(t, rigConfig{
		cfg: cfg,
		// Only all of a ticket counts, so that each rewriting is a miss.
		server: func(c *server.Config) { c.ReuseMinShare = 1 },
	})
	return w
}

// talk holds the conversation up to its fifth question, and returns what the fifth request has.
func (w *rewritten) talk(t *testing.T, id string) (messages []json.RawMessage, members map[string]any) {
	t.Helper()
	members = map[string]any{
		"model": "sim", "max_tokens": 400, "stream": w.stream, "conversation_id": id, "temperature": 0,
		"tools": json.RawMessage(`[` + tool("lookup") + `,` + tool("find") + `]`),
	}
	messages = []json.RawMessage{encode(map[string]string{"role": "system", "content": "Today is Monday. " + longText(50)})}
	for _, ask := range []string{"SAY " + longText(1) + ".", `CALL lookup {"b": 1, "a": 2}`, "", "THINK SAY " + longText(4) + "."} {
		if ask != "" {
			messages = append(messages, question(ask))
		}
		a := w.send(t, messages, members)
		said := map[string]any{"role": "assistant", "content": a.content}
		if len(a.tools) > 0 {
			said["content"] = nil
			said["tool_calls"] = []any{map[string]any{
				"id": a.tools[0].id, "type": "function", "function": map[string]any{"name": a.tools[0].name, "arguments": a.tools[0].arguments},
			}}
			messages = append(messages, encode(said), encode(map[string]string{"role": "tool", "tool_call_id": a.tools[0].id, "content": "found"}))
			continue
		}
		if a.reasoning != "" {
			said["reasoning"] = a.reasoning
		}
		messages = append(messages, encode(said))
	}
	return append(messages, question("SAY "+longText(5)+".")), members
}

func (w *rewritten) send(t *testing.T, messages []json.RawMessage, members map[string]any) *answered {
	t.Helper()
	a, err := w.post(t.Context(), "/v1/chat/completions", http.Header{}, w.body(messages, members), unwatched)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%v, %+v", err, a)
	}
	return a
}

func (*rewritten) body(messages []json.RawMessage, members map[string]any) []byte {
	all := maps.Clone(members)
	all["messages"] = messages
	return encode(all)
}

// check sends the rewritten fifth turn of a conversation, after another conversation of the same shapes, so that parity is known.
func (w *rewritten) check(t *testing.T, row rewriting) {
	t.Helper()
	for _, id := range []string{"teacher of " + row.name, row.name} {
		messages, members := w.talk(t, id)
		if len(messages) != atThought+2 {
			t.Fatalf("the talk has %d messages", len(messages))
		}
		messages = row.change(messages, members)
		a := w.send(t, messages, members)
		if id != row.name {
			continue
		}
		got := a.reuse()
		if row.name == printedAnew {
			if !strings.HasPrefix(got, "hit;") {
				t.Errorf("X-KV-Reuse %q, want a hit: templates print arguments by themselves, so that the tokens are the same", got)
			}
			return
		}
		if !strings.HasSuffix(got, ";differs="+row.differs) || !strings.HasPrefix(noHit(got), "miss;reason=") {
			t.Errorf("X-KV-Reuse %q, want a miss that differs at %s", got, row.differs)
		}
	}
}

func TestRewritten_TheHeaderSaysWhere(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			w := startRewritten(t, stream)
			messages, members := w.talk(t, "faithful")
			w.send(t, messages, members)
			for _, row := range rewritings() {
				t.Run(row.name, func(t *testing.T) { w.check(t, row) })
			}
			w.verifyReads(t, 0)
		})
	}
}
