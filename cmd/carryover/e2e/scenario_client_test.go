package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/vllmsim"
	"github.com/klauspost/compress/zstd"
	"github.com/tidwall/gjson"
)

// How an answer ends as a client sees it.
const (
	endsWhole  = "whole"  // a body that is not a stream, complete
	endsDone   = "done"   // a stream with [DONE], closed in order
	endsClean  = "clean"  // a stream without [DONE], closed in order
	endsBroken = "broken" // the connection ended in the middle
	endsLeft   = "left"   // the client went away
)

// answered is what a client saw of an answer.
type answered struct {
	status    int
	header    http.Header
	raw       []byte
	ends      string
	content   string
	reasoning string
	tools     []*toolCallSeen
	code      string // of an error, in the body or as the last event
	message   string
	usage     string
}

type toolCallSeen struct{ id, name, arguments string }

// reuse is the header that says what the turn reused.
func (a *answered) reuse() string { return a.header.Get("X-KV-Reuse") }

// hit reports whether the turn has reused something.
func (a *answered) hit() bool { return strings.HasPrefix(a.reuse(), "hit;") }

// noHit is X-KV-Reuse without what prefill's own caches had: of a turn that used no ticket it says "miss;", as if they had nothing. What they
// have depends on what other turns have asked.
func noHit(reuse string) string {
	if rest, found := strings.CutPrefix(reuse, "prefix;tokens="); found {
		_, why, _ := strings.Cut(rest, ";")
		return "miss;" + why
	}
	return reuse
}

// assistant is the message by which a client repeats the answer as history. Clients
// leave reasoning out.
func (a *answered) assistant() json.RawMessage {
	message := object{"role": "assistant", "content": a.content}
	var calls []any
	for _, call := range a.tools {
		calls = append(calls, object{
			"id": call.id, "type": "function", "function": object{"name": call.name, "arguments": call.arguments},
		})
	}
	if calls != nil {
		message["content"], message["tool_calls"] = nil, calls
	}
	return encode(message)
}

// encode is json.Marshal for values that always encode.
func encode(v any) json.RawMessage {
	encoded, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return encoded
}

// post sends a request as an OpenAI client does and reads the answer to its end. watch
// sees each event of a stream, [DONE] included, and its number, from 1 on. The error is
// that of a client that got no status line.
func (r *rig) post(ctx context.Context, path string, header http.Header, body []byte, watch func(event int, data []byte)) (*answered, error) {
	if header.Get("Content-Encoding") == "zstd" {
		var packed bytes.Buffer
		z, _ := zstd.NewWriter(&packed, zstd.WithEncoderConcurrency(1))
		_, _ = z.Write(body)
		_ = z.Close()
		body = packed.Bytes()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answered{status: resp.StatusCode, header: resp.Header}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		a.readStream(resp.Body, watch)
	} else {
		a.readWhole(resp.Body)
	}
	if ctx.Err() != nil {
		a.ends = endsLeft
	}
	return a, nil
}

func (a *answered) readWhole(body io.Reader) {
	var err error
	a.raw, err = io.ReadAll(body)
	a.ends = endsWhole
	if err != nil {
		a.ends = endsBroken
	}
	a.take(a.raw, "message")
}

func (a *answered) readStream(body io.Reader, watch func(int, []byte)) {
	lines, done := bufio.NewReader(body), false
	var begun []byte // of an event on several lines
	for event := 0; ; {
		line, err := lines.ReadBytes('\n')
		a.raw = append(a.raw, line...)
		switch {
		case errors.Is(err, io.EOF) && done:
			a.ends = endsDone
			return
		case errors.Is(err, io.EOF):
			a.ends = endsClean
			return
		case err != nil:
			a.ends = endsBroken
			return
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok {
			continue
		}
		data = append(begun, data...)
		if begun = nil; string(data) == "[DONE]" {
			done = true
		} else if bytes.HasSuffix(data, []byte(",")) {
			begun = append(data, '\n')
			continue
		} else {
			a.take(data, "delta")
		}
		event++
		watch(event, data)
	}
}

// take reads one chunk, or a whole answer, whose message stands for the delta.
func (a *answered) take(data []byte, part string) {
	all := gjson.ParseBytes(data)
	if e := all.Get("error"); e.Exists() {
		a.code, a.message = e.Get("code").String(), e.Get("message").String()
	}
	if u := all.Get("usage"); u.IsObject() {
		a.usage = u.Raw
	}
	choice := all.Get("choices.0")
	a.content += choice.Get("text").String() + choice.Get(part+".content").String()
	a.reasoning += choice.Get(part + ".reasoning").String()
	for i, call := range choice.Get(part + ".tool_calls").Array() {
		if at := call.Get("index"); at.Exists() {
			i = int(at.Int())
		}
		for len(a.tools) <= i {
			a.tools = append(a.tools, &toolCallSeen{})
		}
		a.tools[i].id += call.Get("id").String()
		a.tools[i].name += call.Get("function.name").String()
		a.tools[i].arguments += call.Get("function.arguments").String()
	}
}

// object is one of JSON, such as a request.
type object = map[string]any

// endpointOf is the endpoint of a body.
func endpointOf(body object) string {
	if body["messages"] != nil {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// must sends a request that is answered, well or not. It may be called from any goroutine.
func (r *rig) must(t *testing.T, path string, header http.Header, body any) *answered {
	t.Helper()
	a, err := r.post(t.Context(), path, header, encode(body), unwatched)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return &answered{header: http.Header{}}
	}
	return a
}

// say sends a chat, or a prompt.
func (r *rig) say(t *testing.T, body object) *answered {
	t.Helper()
	return r.must(t, endpointOf(body), nil, body)
}

// askAs sends messages as one turn of a conversation.
func (r *rig) askAs(t *testing.T, id string, messages ...json.RawMessage) *answered {
	t.Helper()
	a := r.say(t, object{"model": "sim", "messages": messages, "max_tokens": 400, "conversation_id": id})
	if a.status != http.StatusOK {
		t.Errorf("status %d: %s", a.status, a.raw)
	}
	return a
}

// alone is the answer of a new engine to a request.
func alone(ctx context.Context, cfg vllmsim.Config, path string, body any) (*answered, error) {
	raw, err := vllmsim.Lone(ctx, cfg, path, encode(body))
	a := &answered{status: http.StatusOK, ends: endsWhole}
	a.take(raw, "message")
	return a, err
}
