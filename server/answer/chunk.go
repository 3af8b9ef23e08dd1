package answer

import (
	"bytes"
	"errors"

	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// plainChunk is a chunk that has nothing but a piece of text, as nearly all chunks of a stream.
type plainChunk struct {
	id  []byte       // the answer's id, without the quotes
	ids rawjson.Span // token_ids, the zero Span if they are null or absent
}

// plain handles an event that is a piece of text and nothing else. For any other event ok is false, and nothing has changed. weigh has the same
// effect at several times the cost, except that plain also checks the id.
func (a *Reader) plain(ev sse.Event) (_ sse.Verdict, ok bool) {
	if !a.leg.Asks.IDs || ev.Member != nil || a.finish != "" {
		return 0, false
	}
	chunk, ok := readPlain(ev.Data, a.leg.API)
	if !ok {
		return 0, false
	}
	if a.id == nil || !bytes.Equal(chunk.id, a.id) {
		a.belongs(string(chunk.id))
	}
	if chunk.ids.To > 0 {
		a.takes(a.leg.IDs.Add(nil, ev.Data[chunk.ids.From:chunk.ids.To]))
		if a.leg.Asks.Hidden {
			ev.Replace(chunk.ids.From, chunk.ids.To, []byte("null"))
		}
	}
	if a.Foreign && !a.passed {
		return sse.Stop, true
	}
	return sse.Forward, true
}

var errUnusual = errors.New("no plain chunk")

// chunkReader reads one chunk in one pass, without an allocation.
type chunkReader struct {
	scan  rawjson.Scanner
	api   body.API
	chunk plainChunk
	seen  plainMember
}

// plainMember is a set of members that a plain chunk has at most once. If a name occurs twice, parsers may take either.
type plainMember uint

const (
	sawID plainMember = 1 << iota
	sawChoices
	sawIndex
	sawDelta
	sawText
	sawIDs
)

// readPlain reads a chunk that is one valid JSON object with an id, and one choice with text and perhaps token ids. ok is false for all others:
// with a finish, usage, an error, the prompt's ids, tool calls, reasoning or several choices, and for whatever else [Reader.read] would have to
// look at.
func readPlain(data []byte, api body.API) (_ plainChunk, ok bool) {
	r := chunkReader{scan: rawjson.Scanner{Data: data}, api: api}
	r.scan.Space()
	err := r.scan.Members(func(m rawjson.Member) error { return r.top(m) })
	return r.chunk, err == nil && r.scan.End() && r.seen&(sawID|sawChoices|sawText) == sawID|sawChoices|sawText
}

func (r *chunkReader) top(m rawjson.Member) error {
	switch string(m.Key) {
	case "id":
		return r.id()
	case "choices":
		return r.choices()
	case "usage", "error", "prompt_token_ids":
		return r.null()
	}
	return r.pass(m)
}

func (r *chunkReader) choices() error {
	if err := r.once(sawChoices); err != nil {
		return err
	}
	if more, err := r.scan.Open('['); !more || err != nil {
		return errUnusual
	}
	if err := r.scan.Members(func(m rawjson.Member) error { return r.choice(m) }); err != nil {
		return err
	}
	if more, err := r.scan.Separator(']'); more || err != nil {
		return errUnusual
	}
	return nil
}

func (r *chunkReader) choice(m rawjson.Member) error {
	switch string(m.Key) {
	case "index":
		return r.zero()
	case "delta":
		if r.api != body.Chat || r.once(sawDelta) != nil {
			return errUnusual
		}
		return r.scan.Members(func(m rawjson.Member) error { return r.delta(m) })
	case "text":
		if r.api != body.Text {
			return errUnusual
		}
		return r.text(sawText)
	case "finish_reason", "stop_reason", "prompt_token_ids":
		return r.null()
	case "token_ids":
		return r.tokenIDs()
	case "weight_versions": // does not concern the text (vLLM 0.33)
		return r.scan.Skip()
	}
	return r.pass(m)
}

func (r *chunkReader) delta(m rawjson.Member) error {
	switch string(m.Key) {
	case "content":
		return r.text(sawText)
	case "reasoning", "reasoning_content", "function_call", "tool_calls":
		return r.null()
	}
	return r.pass(m)
}

// once notes a member, and fails if the chunk has had it before.
func (r *chunkReader) once(which plainMember) error {
	if r.seen&which != 0 {
		return errUnusual
	}
	r.seen |= which
	return nil
}

func (r *chunkReader) pass(m rawjson.Member) error {
	if bytes.IndexByte(m.Key, '\\') >= 0 { // an escaped name may be one of the members that matter
		return errUnusual
	}
	return r.scan.Skip()
}

func (r *chunkReader) null() error { return r.scan.SkipWord("null") }

func (r *chunkReader) zero() error {
	from := r.scan.Pos
	if err := r.scan.SkipNumber(); err != nil || string(r.scan.Data[from:r.scan.Pos]) != "0" {
		return errUnusual
	}
	return r.once(sawIndex)
}

func (r *chunkReader) text(which plainMember) error {
	if err := r.once(which); err != nil || r.scan.Peek() != '"' {
		return errUnusual
	}
	return r.scan.SkipString()
}

// id reads the answer's id, which must have no escapes.
func (r *chunkReader) id() error {
	from := r.scan.Pos + 1
	if err := r.text(sawID); err != nil {
		return err
	}
	if r.chunk.id = r.scan.Data[from : r.scan.Pos-1]; bytes.IndexByte(r.chunk.id, '\\') >= 0 {
		return errUnusual
	}
	return nil
}

// tokenIDs reads null or an array, as [sse.FindTokenIDs] does.
func (r *chunkReader) tokenIDs() error {
	if err := r.once(sawIDs); err != nil {
		return err
	}
	if r.scan.Peek() != '[' {
		return r.null()
	}
	from := r.scan.Pos
	if err := r.scan.Skip(); err != nil {
		return err
	}
	r.chunk.ids = rawjson.Span{From: from, To: r.scan.Pos}
	return nil
}
