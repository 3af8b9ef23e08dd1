package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

// stream answers with the events of this API. As in vLLM, each translates an event of a chat stream (message_stream_converter,
// anthropic/serving.py). The first comes with the engine's first output, even if that is an error.
func (t *messageTurn) stream(ctx context.Context, w http.ResponseWriter) error {
	s := &messageStream{Events: wire.NewEvents(w)}
	ch := t.choices[0]
	for first := true; ch.finish == "" && s.Err == nil; first = false {
		p, err := t.streamed(ctx, ch)
		if errors.Is(err, wire.ErrConnectionGone) {
			return err
		}
		if first {
			s.start(t.opening())
		}
		if err != nil {
			s.fail(wire.MessageStreamError(t.endpoints.config()))
			return s.Err
		}
		s.piece(p)
	}
	reason, sequence := t.messageStop(ch)
	end := messageEvent{Type: "message_delta", Delta: stopDelta{reason, sequence}}
	if params := t.streamParams(); t.endpoints.config().MessageParams && string(params) != "null" {
		end.KVTransferParams = params
	}
	if !t.fault.Is(fault.NoUsage) {
		usage := t.messageUsage()
		end.Usage = &usage
	}
	s.end(end)
	return s.Err
}

// opening returns the message of message_start. Its input_tokens count the whole prompt.
func (t *messageTurn) opening() openingMessage {
	m := openingMessage{ID: t.id, Type: "message", Role: "assistant", Content: []contentBlock{}, Model: t.endpoints.config().Answered(t.request.Model)}
	if !t.fault.Is(fault.NoUsage) {
		m.Usage.InputTokens = t.continuous(t.choices[0]).PromptTokens
	}
	return m
}

// openingMessage includes members that are null until the end.
type openingMessage struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`
	Role         string         `json:"role"`
	Content      []contentBlock `json:"content"`
	Model        string         `json:"model"`
	StopReason   *string        `json:"stop_reason"`
	StopSequence *string        `json:"stop_sequence"`
	Usage        messageUsage   `json:"usage"`
}

// messageEvent is the data of an event. Its type decides which members it has.
type messageEvent struct {
	Type             string          `json:"type"`
	Message          *openingMessage `json:"message,omitempty"`
	ContentBlock     *contentBlock   `json:"content_block,omitempty"`
	Delta            any             `json:"delta,omitempty"`
	Usage            *messageUsage   `json:"usage,omitempty"`
	KVTransferParams json.RawMessage `json:"kv_transfer_params,omitempty"`
	Index            *int            `json:"index,omitempty"`
}

type contentDelta struct {
	Type        string  `json:"type"`
	Text        *string `json:"text,omitempty"`
	Thinking    *string `json:"thinking,omitempty"`
	PartialJSON *string `json:"partial_json,omitempty"`
	Signature   *string `json:"signature,omitempty"`
}

type stopDelta struct {
	StopReason   string  `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

// messageStream writes events. At most one block is open, for the last text, thought or call.
type messageStream struct {
	*wire.Events

	index int
	block string // type of the open block, empty for none
}

func (s *messageStream) start(m openingMessage) {
	s.send(messageEvent{Type: "message_start", Message: &m})
}

// piece writes the events of one token; empty texts and thoughts have no event.
func (s *messageStream) piece(p piece) {
	empty := ""
	if p.reasoning != nil && *p.reasoning != "" {
		s.enter(contentBlock{Type: "thinking", Thinking: &empty})
		s.delta(contentDelta{Type: "thinking_delta", Thinking: p.reasoning})
	}
	if p.content != nil && *p.content != "" {
		s.enter(contentBlock{Type: "text", Text: &empty})
		s.delta(contentDelta{Type: "text_delta", Text: p.content})
	}
	if p.call == nil {
		return
	}
	if p.call.ID != "" {
		s.leave() // each call has its own block
		s.enter(contentBlock{Type: "tool_use", ID: p.call.ID, Name: p.call.Function.Name, Input: json.RawMessage("{}")})
	}
	if p.call.Function.Arguments != "" {
		s.delta(contentDelta{Type: "input_json_delta", PartialJSON: &p.call.Function.Arguments})
	}
}

// enter begins a block unless one of its type is open.
func (s *messageStream) enter(b contentBlock) {
	if s.block == b.Type {
		return
	}
	s.leave()
	s.block = b.Type
	s.send(messageEvent{Type: "content_block_start", ContentBlock: &b, Index: &s.index})
}

// leave ends the open block. A thought gets its signature at the end.
func (s *messageStream) leave() {
	if s.block == "" {
		return
	}
	if s.block == "thinking" {
		signature := wire.RandomHex(16)
		s.delta(contentDelta{Type: "signature_delta", Signature: &signature})
	}
	s.block = ""
	s.send(messageEvent{Type: "content_block_stop", Index: &s.index})
	s.index++
}

func (s *messageStream) delta(d contentDelta) {
	s.send(messageEvent{Type: "content_block_delta", Delta: d, Index: &s.index})
}

func (s *messageStream) end(delta messageEvent) {
	s.leave()
	s.send(delta)
	s.send(messageEvent{Type: "message_stop"})
}

// fail ends a stream with an error event, without message_stop.
func (s *messageStream) fail(e wire.MessageError) { s.Write("error", e) }

func (s *messageStream) send(e messageEvent) { s.Write(e.Type, e) }
