package reuse

import (
	"bytes"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/answer"
	"carryover/server/continuation"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// kindOf is the kind of a request's answers, as far as the request shows it.
func kindOf(req *request.Request, parsed *body.Request) continuation.Kind {
	raw, _ := parsed.Member("tools")
	return continuation.Kind{
		API: req.API, FollowUp: req.Length.Answered, Tools: rawjson.Kind(raw) == '[' && !rawjson.IsEmpty(raw), Explicit: !req.Conversation.ByContent(),
	}
}

// learn tells once for each turn that it may continue an answer, whether it uses a ticket or not. A request by content that has no answer in
// it opens its conversation. Of one that an id has not found, the answer may wait under the id of the turn before.
func (f *Finder) learn(p *Proving, looked *Lookup) {
	if p.told || p.request == nil || !p.request.Conversation.Known {
		return
	}
	p.told = true
	c := &p.request.Conversation
	if p.kind.Explicit || p.kind.FollowUp || p.request.API == body.Text {
		earlier := slices.Clip(c.Earlier)
		if looked.byContent {
			for i := range looked.Branches {
				earlier = append(earlier, looked.Branches[i].Key)
			}
		}
		turn := continuation.Turn{Key: c.Home(), Earlier: earlier, Explicit: p.kind.Explicit, Found: !looked.empty(), GoesOn: p.goesOn}
		r := p.record.Reuse()
		r.Released = f.deps.Pins.Continuations.ContinuesReleased(turn)
		p.record.Reuses(r)
		f.deps.Pins.Continuations.Asked(turn, p.record.Times().Began)
	}
}

// learn tells that a turn was answered, so that its continuation is known as one.
func (m *Maker) learn(p *Proving, a *answer.Result) {
	if conversation := &p.request.Conversation; conversation.Known && !conversation.Final && a.Completeness != answer.Incomplete {
		p.kind.ToolCalls, p.kind.Unread = a.Finish == "tool_calls", p.kind.Tools && a.Finish == ""
		m.deps.Pins.Continuations.Answered(p.request.Account, conversation.Tenant, p.kind, conversation.Home(), p.prompt, time.Now())
	}
}

// StoredReleased is recorded for an answer that is released without being stored, because answers of its kind are not continued.
const StoredReleased = "released"

// choose chooses what becomes of an answer's ticket, records it, and reports whether the ticket was released at once.
func (m *Maker) choose(p *Proving, to pins.Answer, ticket *convcache.Ticket) (released bool) {
	choice := m.deps.Pins.Choose(to, p.request.Conversation.Tenant, p.kind, ticket)
	p.record.Chosen(record.Keep{What: choice.Now().String(), For: choice.Wait})
	if !choice.AtOnce() {
		return false
	}
	left := *ticket
	left.Params = bytes.Clone(left.Params) // they are a part of the answer, which would be kept with them
	p.record.Stored(StoredReleased)
	m.deps.Pins.Continuations.Released(p.request.Conversation.Home(), p.prompt)
	m.deps.Pins.Unuse(left, p.request.Model)
	return true
}
