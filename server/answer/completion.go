package answer

import (
	"bytes"

	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// judge decides on one event. It parses every event if the ids are needed, else only the first and those that may matter.
func (a *Reader) judge(ev sse.Event) sse.Verdict {
	switch a.leg.API {
	case body.Messages:
		return a.judgeMessage(ev)
	case body.Responses:
		return a.judgeResponse(ev)
	}
	first := !a.Seen
	a.Seen = true
	if a.Done { // events behind the end have no part of the answer
		return sse.Forward
	}
	if ev.Member != nil {
		a.params = bytes.Clone(ev.Member)
		a.ends()
	}
	if string(ev.Data) == "[DONE]" {
		a.Done, a.over = true, true
		return sse.Forward
	}
	if rawjson.Begins(ev.Data, `{"error":`) {
		a.fails(rawjson.Get(ev.Data, "error"))
		if !a.passed && a.turn.MayRestart() {
			return sse.Stop
		}
		return sse.Forward
	}
	if first {
		a.turn.Begun()
	}
	if !first {
		if verdict, ok := a.plain(ev); ok {
			return verdict
		}
	}
	return a.weigh(ev, first)
}

func (a *Reader) weigh(ev sse.Event, first bool) sse.Verdict {
	if a.leg.Asks.IDs {
		a.takeIDs(ev)
	}
	if !first && !a.tells(ev.Data) {
		a.tellCached(ev, "usage")
		return sse.Forward
	}
	found, ok := readMembers(ev.Data)
	if !ok {
		a.ineligible = Unparsable
		return sse.Forward
	}
	choice, some := a.read(&found)
	a.over = a.over || a.finishedAll(&found)
	if first && some && a.usage.Prompt >= 0 {
		a.leg.Asks.Usage = false // the engine sends its usage to every client (--enable-force-include-usage)
	}
	if !a.leg.Asks.Usage { // the client sees the usage
		a.tellCached(ev, "usage")
	}
	switch {
	case a.Foreign && !a.passed:
		return sse.Stop
	case first && choice.roleOnly():
		return sse.Await
	case a.leg.Asks.Hidden && choice.onlyForIDs():
		return sse.Drop
	case a.leg.Asks.Usage && !some && found.hasUsage(): // the event with the usage has no choice
		return a.resumeFinish(ev)
	case a.leg.Asks.Usage && a.holdFinish(ev.Data, found.choices, choice.finish):
		return sse.Hold
	}
	return sse.Forward
}

// tells is true if an event ends a choice, follows the end, has a usage, or exists only because ids were asked for.
func (a *Reader) tells(data []byte) bool {
	if (a.leg.Choices > 1 || !a.goesOn(data)) && rawjson.MayHave(data, "finish_reason", `"`) {
		return true
	}
	return a.leg.IDs.Wanted() && (a.finish != "" || rawjson.MayHave(data, "usage", "{") || a.leg.Asks.Hidden && rawjson.MayHave(data, "delta", "{}"))
}

// goesOn reports whether an event of one choice ends as vLLM 0.32 and 0.33 end a chunk without ids whose choice goes on. A search for the
// finish takes six times as long.
func (a *Reader) goesOn(data []byte) bool {
	const text = `"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null`
	if a.leg.API == body.Chat {
		return bytes.HasSuffix(data, []byte(`"finish_reason":null,"token_ids":null}]}`))
	}
	return bytes.HasSuffix(data, []byte(text+"}]}")) || bytes.HasSuffix(data, []byte(text+`,"weight_versions":null}]}`))
}

// finishedAll notes the choices of a chunk that have their finish, and reports whether all choices of the answer have.
func (a *Reader) finishedAll(found *answerMembers) bool {
	if a.leg.Choices <= 1 {
		return a.finish != ""
	}
	for raw := range rawjson.Elements(found.choices) {
		if choice := readChoice(raw); rawjson.Kind(choice.finish) == '"' {
			if a.finished == nil {
				a.finished = map[string]bool{}
			}
			a.finished[string(choice.index)] = true
		}
	}
	return len(a.finished) >= a.leg.Choices
}

// onlyForIDs: vLLM sends such an event if a tool or reasoning parser holds the text back (chat_completion/serving.py).
func (c *choiceMembers) onlyForIDs() bool {
	return rawjson.Kind(c.delta) == '{' && rawjson.IsEmpty(c.delta) && rawjson.IsNull(c.finish) && rawjson.IsNull(c.logprobs)
}

// takeIDs collects the ids of an event. Unless the client asked for ids itself, it replaces them by the nulls of a stock engine.
func (a *Reader) takeIDs(ev sse.Event) {
	found, ok := sse.FindTokenIDs(ev.Data)
	if !ok {
		return
	}
	a.takes(a.leg.IDs.Add(found.Prompt, found.Output))
	if a.leg.Asks.Hidden {
		found.Null(ev)
	}
}

// roleOnly recognises vLLM's first chat chunk. vLLM sends it even if loading the KV has failed; the next event is then the error.
func (c *choiceMembers) roleOnly() bool {
	content := rawjson.Get(c.delta, "content")
	return rawjson.Get(c.delta, "role") != nil && (rawjson.IsNull(content) || string(content) == `""`) && rawjson.IsNull(c.finish)
}

func (a *Reader) read(found *answerMembers) (choice choiceMembers, some bool) {
	both := found.hasUsage() && a.usage.read(found.usage)
	if !rawjson.IsNull(found.failure) {
		a.fails(found.failure)
	}
	if found.id != nil && !found.has(a.id) { // an id equal to the last has been checked
		a.belongs(upstream.AnswerID(found.id))
	}
	raw, more := found.choice()
	if raw == nil {
		a.totalled = a.totalled || both
		return choice, false
	}
	choice = readChoice(raw)
	if more || !rawjson.IsNull(choice.index) && string(choice.index) != "0" {
		a.ineligible = "choices"
	}
	if a.closes(&choice) {
		a.ends()
	}
	a.totalled = a.totalled || both && a.finish != "" // a usage before the finish counts only the tokens so far
	return choice, true
}

// Whole reads a whole answer, and returns it as a stock engine would have sent it, or unchanged if the client may see the additions. A connector
// that rewrites answers gets it then.
func (a *Reader) Whole(answer []byte) rawjson.Pieces {
	shown := a.whole(answer)
	if a.leg.Rewrite == nil || a.ineligible == Unparsable {
		return shown
	}
	rewritten, err := a.leg.Rewrite.Body(shown.Bytes())
	a.Unwritable = err
	return rawjson.Pieces{rewritten}
}

func (a *Reader) whole(answer []byte) rawjson.Pieces {
	a.finishes()
	switch a.leg.API {
	case body.Messages:
		return edited(answer, a.wholeMessage(answer))
	case body.Responses:
		return edited(answer, a.wholeResponse(answer))
	}
	edits := a.cutParams(answer)
	members, ok := readMembers(answer)
	if !ok {
		a.ineligible = Unparsable
		return edited(answer, edits)
	}
	a.read(&members)
	if a.leg.Asks.IDs {
		all, prompt, output := sse.AllTokenIDs(answer)
		a.takes(a.leg.IDs.Add(prompt, output))
		if a.leg.Asks.Hidden {
			edits = nulled(edits, all)
		}
	}
	return edited(answer, append(edits, a.leg.Cached.edits(a.leg.API, answer, "usage")...))
}

func (a *Reader) cutParams(body []byte) (edits []valueEdit) {
	params, cuts := rawjson.FindMember(body, ParamsMember, nil)
	if len(cuts) > 0 && !rawjson.IsNull(params) {
		a.params = params
	}
	for _, cut := range cuts {
		edits = append(edits, valueEdit{cut, nil})
	}
	return edits
}

// answerMembers are values of top-level members, nil for absent ones. If a name occurs twice, the last counts.
type answerMembers struct{ id, choices, failure, usage []byte }

// readMembers allocates nothing. ok is false for invalid JSON. A valid value that is not an object has no members.
func readMembers(data []byte) (_ answerMembers, ok bool) {
	var found answerMembers
	s := rawjson.Scanner{Data: data}
	s.Space()
	if s.Peek() != '{' {
		return found, s.Skip() == nil && s.End()
	}
	err := s.Members(func(m rawjson.Member) error {
		if err := s.Skip(); err != nil {
			return err
		}
		if into := found.named(m.Key); into != nil {
			*into = data[m.Value:s.Pos]
		}
		return nil
	})
	return found, err == nil && s.End()
}

// named returns the place for the value of a member, nil if the member is not needed. The key may have escapes.
func (f *answerMembers) named(key []byte) *[]byte {
	if bytes.IndexByte(key, '\\') >= 0 {
		key, _ = rawjson.Unescape(key)
	}
	switch string(key) {
	case "id":
		return &f.id
	case "choices":
		return &f.choices
	case "error":
		return &f.failure
	case "usage":
		return &f.usage
	}
	return nil
}

func (f *answerMembers) choice() (first []byte, more bool) {
	if rawjson.Kind(f.choices) != '[' && !rawjson.IsNull(f.choices) {
		return f.choices, false // no engine sends this
	}
	return rawjson.First(f.choices)
}

type choiceMembers struct{ index, delta, logprobs, finish, stop []byte }

// readChoice reads a choice once: its logprobs can be long.
func readChoice(choice []byte) (c choiceMembers) {
	for m, value := range rawjson.Members(choice) {
		switch {
		case m.Named("index"):
			c.index = value
		case m.Named("delta"):
			c.delta = value
		case m.Named("logprobs"):
			c.logprobs = value
		case m.Named("finish_reason"):
			c.finish = value
		case m.Named("stop_reason"):
			c.stop = value
		}
	}
	return c
}

// has reports whether the id is this one, spelled without escapes.
func (f *answerMembers) has(id []byte) bool {
	return len(id) > 0 && len(f.id) == len(id)+2 && f.id[0] == '"' && bytes.Equal(f.id[1:len(f.id)-1], id) && bytes.IndexByte(id, '\\') < 0
}

func (f *answerMembers) hasUsage() bool { return rawjson.Kind(f.usage) == '{' }
