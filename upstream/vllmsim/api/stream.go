package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

// stream answers with server-sent events. It sends the status before the engine has done anything, so any later failure is an
// error event.
func (c *completion) stream(ctx context.Context, w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &eventStream{completion: c, w: w, flush: http.NewResponseController(w)}
	w.WriteHeader(http.StatusOK)
	if err := s.flush.Flush(); err != nil {
		return wire.ErrConnectionGone
	}
	if err := s.events(ctx); err != nil {
		return err
	}
	return s.write([]byte("[DONE]"))
}

// eventStream writes the events of one answer.
type eventStream struct {
	completion *completion
	w          http.ResponseWriter
	flush      *http.ResponseController
	offset     int // characters of text so far, for logprobs of text completions
}

// events writes everything between the headers and [DONE]. Several choices take turns.
func (s *eventStream) events(ctx context.Context) error {
	c := s.completion
	for round := 0; ; round++ {
		going := false
		for at, ch := range c.choices {
			if ch.finish != "" {
				continue
			}
			going = true
			p, err := c.advance(ctx, ch)
			if err == nil && c.fault.Is(fault.ErrorEvent) {
				err = engine.ErrLoadFailed // stands for any error that the client sees
			}
			if err != nil && errors.Is(failure(err), wire.ErrConnectionGone) {
				return wire.ErrConnectionGone
			}
			if round == 0 && at == 0 && c.chat {
				// The role comes with the engine's first output, even if that is an error.
				if err := s.roles(); err != nil {
					return err
				}
			}
			if err != nil {
				return s.write(wire.ErrorEvent(wire.InternalError(), c.endpoints.config()))
			}
			if err := s.token(ch, p); err != nil {
				return err
			}
		}
		if !going {
			return s.tail()
		}
	}
}

// roles writes the first chunk of every choice.
func (s *eventStream) roles() error {
	c := s.completion
	for _, ch := range c.choices {
		empty := ""
		e := s.chunk(ch, chatChunkChoice{Index: ch.index, Delta: delta{Role: "assistant", Content: &empty}, Logprobs: wire.Null})
		e.PromptTokenIDs, e.PromptText = wire.Null, wire.Null
		if e.Usage != nil {
			e.Usage.CompletionTokens, e.Usage.TotalTokens = 0, e.Usage.PromptTokens
		}
		if c.idEcho() {
			e.PromptTokenIDs = wire.RawIDs(ch.prompt)
		}
		if err := s.send(e); err != nil {
			return err
		}
	}
	return nil
}

// token writes the event of one token, if it has one.
func (s *eventStream) token(ch *choice, p piece) error {
	c := s.completion
	// A chat token without text is an event only with logprobs or ids; text completions have no parser and always send
	// one (chat_completion/serving.py, completion/serving.py, 0.32).
	if p.silent && ch.finish == "" && c.chat && c.request.Alternatives < 0 && !c.request.ReturnTokenIDs {
		return nil
	}
	ids := wire.Null
	if c.request.ReturnTokenIDs {
		ids = wire.RawIDs(ch.said)
	}
	var e *chunk
	if c.chat {
		e = s.chunk(ch, s.chatChoice(ch, p, ids))
	} else {
		e = s.chunk(ch, s.textChoice(ch, p, ids))
	}
	e.KVTransferParams = c.endpoints.config().NullSince033()
	if ch.finish != "" {
		if !s.includeUsage() {
			e.SystemFingerprint = c.endpoints.config().Fingerprint()
		}
		if s.paramsPlace() == config.ParamsFinish && ch == c.choices[len(c.choices)-1] {
			params, err := c.streamParams()
			if err != nil {
				return err
			}
			if params != nil {
				e.KVTransferParams = params
			}
		}
	}
	return s.send(e)
}

func (s *eventStream) chatChoice(ch *choice, p piece, ids json.RawMessage) chatChunkChoice {
	c := s.completion
	choice := chatChunkChoice{Index: ch.index, Logprobs: wire.Null, TokenIDs: ids}
	if !p.silent {
		choice.Delta.Content = p.content
		if c.request.IncludeReasoning == nil || *c.request.IncludeReasoning {
			choice.Delta.Reasoning = p.reasoning
		}
		if p.call != nil {
			choice.Delta.ToolCalls = []toolCallDelta{*p.call}
		}
	}
	if c.request.Alternatives >= 0 {
		choice.Logprobs = c.chatLogprobs(ch.logprobs[len(ch.logprobs)-1:])
	}
	if ch.finish != "" {
		choice.FinishReason, choice.StopReason = &ch.finish, wire.RawJSON(ch.stopReason)
		choice.WeightVersions = c.endpoints.config().NullSince033()
	}
	return choice
}

func (s *eventStream) textChoice(ch *choice, p piece, ids json.RawMessage) textChunkChoice {
	c := s.completion
	choice := textChunkChoice{Index: ch.index, Logprobs: wire.Null, StopReason: wire.Null, TokenIDs: ids, WeightVersions: c.endpoints.config().NullSince033()}
	if p.content != nil {
		choice.Text = *p.content
	}
	if len(ch.ids) == 1 {
		if c.idEcho() {
			choice.PromptTokenIDs = ch.prompt
		}
		if c.request.Echo {
			choice.Text = c.endpoints.tok.Decode(ch.prompt) + choice.Text
		}
	}
	if c.request.Alternatives >= 0 {
		choice.Logprobs = c.textLogprobs(ch.logprobs[len(ch.logprobs)-1:], s.offset)
	}
	s.offset += len([]rune(choice.Text))
	if ch.finish != "" {
		choice.FinishReason, choice.StopReason = &ch.finish, wire.RawJSON(ch.stopReason)
	}
	return choice
}

// tail writes the events behind the last finish chunk: usage, and params that have a chunk of their own.
func (s *eventStream) tail() error {
	c := s.completion
	params, err := c.streamParams()
	if err != nil {
		return err
	}
	if s.includeUsage() && !c.fault.Is(fault.NoUsage) {
		e := s.chunk(nil)
		e.Usage, e.SystemFingerprint = c.usage().delta(), c.endpoints.config().Fingerprint()
		if s.paramsPlace() == config.ParamsUsage {
			e.KVTransferParams = params
		}
		if err := s.send(e); err != nil {
			return err
		}
	}
	if s.paramsPlace() != config.ParamsSeparate || params == nil || string(params) == "null" {
		return nil
	}
	e := s.chunk(nil)
	e.KVTransferParams = params
	return s.send(e)
}

func (s *eventStream) includeUsage() bool {
	c := s.completion
	return c.request.StreamOptions != nil && c.request.StreamOptions.IncludeUsage
}

// paramsPlace returns the event of this stream that carries its params.
func (s *eventStream) paramsPlace() string {
	place := s.completion.endpoints.config().Params
	if place == config.ParamsUsage && !s.includeUsage() {
		return config.ParamsFinish
	}
	return place
}

// streamParams are the params of a stream, nil for none.
func (c *completion) streamParams() (json.RawMessage, error) {
	p := c.answeredParams()
	if p == nil && !c.fault.Is(fault.BadParams) {
		return nil, nil
	}
	return faultParams(c.fault, c.engine, p)
}

// chunk returns an event of ch with its choices; both are nil for an event about all choices.
func (s *eventStream) chunk(ch *choice, choices ...any) *chunk {
	c := s.completion
	e := &chunk{ID: c.id, Object: "chat.completion.chunk", Created: c.created, Model: c.endpoints.config().Answered(c.request.Model), Choices: choices}
	if !c.chat {
		e.Object = "text_completion"
	}
	if choices == nil {
		e.Choices = []any{}
	} else if s.includeUsage() && c.request.StreamOptions.ContinuousUsageStats && !c.fault.Is(fault.NoUsage) {
		e.Usage = c.continuous(ch).delta()
	}
	return e
}

func (s *eventStream) send(e *chunk) error {
	raw, err := wire.Marshal(e)
	if err != nil {
		return err
	}
	return s.write(raw)
}

// write sends one event in one write, as uvicorn sends one chunk for each.
func (s *eventStream) write(data []byte) error {
	event := make([]byte, 0, len(data)+8)
	event = append(event, "data: "...)
	event = append(event, data...)
	event = append(event, "\n\n"...)
	if _, err := s.w.Write(event); err != nil {
		return wire.ErrConnectionGone
	}
	if err := s.flush.Flush(); err != nil {
		return wire.ErrConnectionGone
	}
	return nil
}
