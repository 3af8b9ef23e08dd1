package api

import (
	"context"
	"net/http"
	"strings"

	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

// stream answers with the events of this API. Two of them come before the engine has done anything. A later failure has no event: vLLM cannot
// serialise its own error there and cuts the connection (testdata/exchanges/vllm-0.32-agents 11).
func (t *responseTurn) stream(ctx context.Context, w http.ResponseWriter) error {
	s := &responseStream{Events: wire.NewEvents(w), items: []any{}}
	s.begin(t.started())
	for t.choices[0].finish == "" && s.Err == nil {
		p, err := t.advance(ctx, t.choices[0])
		if err != nil {
			return wire.ErrConnectionGone
		}
		if t.fault.Is(fault.ErrorEvent) {
			s.fail(wire.InternalError())
			return s.Err
		}
		s.piece(p)
	}
	s.end(t.endStatus())
	o := t.completed(s.items)
	last := "response.completed"
	if o.Status == statusIncomplete && t.endpoints.config().Since033() {
		last = "response.incomplete"
	}
	s.send(responseEvent{Type: last, Response: &o})
	return s.Err
}

// responseEvent is the data of an event. Its type decides which members it has.
type responseEvent struct {
	Arguments    *string         `json:"arguments,omitempty"`
	ContentIndex *int            `json:"content_index,omitempty"`
	Delta        string          `json:"delta,omitempty"`
	Item         any             `json:"item,omitempty"`
	ItemID       string          `json:"item_id,omitempty"`
	Logprobs     *[]struct{}     `json:"logprobs,omitempty"`
	OutputIndex  *int            `json:"output_index,omitempty"`
	Part         any             `json:"part,omitempty"`
	Response     *responseObject `json:"response,omitempty"`
	Sequence     int             `json:"sequence_number"`
	Text         *string         `json:"text,omitempty"`
	Type         string          `json:"type"`
	Name         string          `json:"name,omitempty"`
}

// responseStream writes events. At most one item is open, for the last text, thought or call.
type responseStream struct {
	*wire.Events

	sequence int
	items    []any // complete items
	item     *openItem
}

type openItem struct {
	kind string // rs, msg or fc, the prefix of its id
	id   string
	text strings.Builder
	call callItem // with kind fc
}

// begin writes the events that precede all work.
func (s *responseStream) begin(o responseObject) {
	s.send(responseEvent{Type: "response.created", Response: &o})
	s.send(responseEvent{Type: "response.in_progress", Response: &o})
}

// piece writes the events of one token; empty texts and thoughts have no event.
func (s *responseStream) piece(p piece) {
	if p.reasoning != nil && *p.reasoning != "" {
		s.add(kindReasoning, *p.reasoning, responseEvent{Type: "response.reasoning_text.delta"})
	}
	if p.content != nil && *p.content != "" {
		s.add(kindMessage, *p.content, responseEvent{Type: "response.output_text.delta", Logprobs: &[]struct{}{}})
	}
	if p.call == nil {
		return
	}
	if p.call.ID != "" {
		s.startCall(p.call)
	}
	if p.call.Function.Arguments != "" {
		s.item.text.WriteString(p.call.Function.Arguments)
		s.sendOf(responseEvent{Type: "response.function_call_arguments.delta", Delta: p.call.Function.Arguments})
	}
}

// The kinds of items, as prefixes of their ids.
const (
	kindReasoning = "rs"
	kindMessage   = "msg"
	kindCall      = "fc"
)

// add writes text to the open item, and begins an item if none of this kind is open.
func (s *responseStream) add(kind, text string, delta responseEvent) {
	if s.item == nil || s.item.kind != kind {
		s.start(kind)
	}
	s.item.text.WriteString(text)
	delta.Delta, delta.ContentIndex = text, new(int)
	s.sendOf(delta)
}

func (s *responseStream) start(kind string) {
	s.end(statusCompleted)
	s.item = &openItem{kind: kind, id: itemID(kind)}
	goesOn := "in_progress"
	var item, part any
	if kind == kindReasoning {
		item, part = newReasoningItem(s.item.id, &goesOn, nil), reasoningPart{Type: "reasoning_text"}
	} else {
		empty := newMessagePart("")
		empty.Logprobs = []struct{}{}
		item, part = newMessageItem(s.item.id, goesOn, nil), empty
	}
	s.sendItem("response.output_item.added", item)
	s.sendOf(responseEvent{Type: "response.content_part.added", ContentIndex: new(int), Part: part})
}

// startCall begins a call. Each call is an item of its own.
func (s *responseStream) startCall(call *toolCallDelta) {
	s.end(statusCompleted)
	s.item = &openItem{kind: kindCall, id: itemID(kindCall)}
	s.item.call = callItem{CallID: call.ID, Name: call.Function.Name, Type: "function_call", ID: s.item.id, Status: "in_progress"}
	s.sendItem("response.output_item.added", s.item.call)
}

// end ends the open item with a status, completed if another item follows.
func (s *responseStream) end(done string) {
	if s.item == nil {
		return
	}
	text := s.item.text.String()
	var item any
	switch s.item.kind {
	case kindReasoning:
		item = newReasoningItem(s.item.id, &done, &text)
		s.endText(responseEvent{Type: "response.reasoning_text.done", Text: &text}, reasoningPart{Text: text, Type: "reasoning_text"})
	case kindMessage:
		item = newMessageItem(s.item.id, done, &text)
		s.endText(responseEvent{Type: "response.output_text.done", Text: &text, Logprobs: &[]struct{}{}}, newMessagePart(text))
	default:
		call := s.item.call
		call.Arguments, call.Status = text, done
		item = call
		s.sendOf(responseEvent{Type: "response.function_call_arguments.done", Arguments: &text, Name: call.Name})
	}
	s.sendItem("response.output_item.done", item)
	s.items, s.item = append(s.items, item), nil
}

func (s *responseStream) endText(e responseEvent, part any) {
	e.ContentIndex = new(int)
	s.sendOf(e)
	s.sendOf(responseEvent{Type: "response.content_part.done", ContentIndex: new(int), Part: part})
}

// fail writes OpenAI's error event. vLLM 0.32 fails to send it, and no engine that does was observed.
func (s *responseStream) fail(e *wire.Error) {
	body := e.Body().Error
	s.Write("error", responseError{Type: "error", Code: e.Kind, Message: body.Message, Param: body.Param, Sequence: s.sequence})
}

type responseError struct {
	Type     string  `json:"type"`
	Code     string  `json:"code"`
	Message  string  `json:"message"`
	Param    *string `json:"param"`
	Sequence int     `json:"sequence_number"`
}

func (s *responseStream) sendItem(name string, item any) {
	index := len(s.items)
	s.send(responseEvent{Type: name, Item: item, OutputIndex: &index})
}

func (s *responseStream) sendOf(e responseEvent) {
	index := len(s.items)
	e.ItemID, e.OutputIndex = s.item.id, &index
	s.send(e)
}

func (s *responseStream) send(e responseEvent) {
	e.Sequence = s.sequence
	s.sequence++
	s.Write(e.Type, e)
}
