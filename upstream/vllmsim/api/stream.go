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

// stream answers with server-sent events. It sends the status before the engine has done anything, so a later failure is an error event.
func (c *completion) stream(ctx context.Context, w http.ResponseWriter) error {
	s := &eventStream{Events: wire.NewEvents(w), completion: c}
	if err := s.events(ctx); err != nil {
		return err
	}
	return s.Done()
}

type eventStream struct {
	*wire.Events
	*completion

	offset int // characters of text so far, for logprobs of text completions
}

// events writes everything between the headers and [DONE]. Several choices take turns.
func (s *eventStream) events(ctx context.Context) error {
	for round := 0; s.Err == nil; round++ {
		going := false
		for at, ch := range s.choices {
			if ch.finish != "" {
				continue
			}
			going = true
			p, err := s.streamed(ctx, ch)
			if errors.Is(err, wire.ErrConnectionGone) {
				return err
			}
			if round == 0 && at == 0 && s.chat {
				s.roles() // with the engine's first output, even if that is an error
			}
			if err != nil {
				s.Raw("", wire.ErrorEvent(wire.InternalError(), s.endpoints.config()))
				return s.Err
			}
			s.token(ch, p)
		}
		if !going {
			s.tail()
			break
		}
	}
	return s.Err
}

func (c *completion) streamed(ctx context.Context, ch *choice) (piece, error) {
	p, err := c.advance(ctx, ch)
	if err == nil && c.fault.Is(fault.ErrorEvent) {
		err = engine.ErrLoadFailed // stands for any error that the client sees
	}
	if err != nil {
		err = failure(err)
	}
	return p, err
}

func (s *eventStream) roles() {
	for _, ch := range s.choices {
		empty := ""
		e := s.chunk(ch, chunkChoice{Index: ch.index, Delta: &delta{Role: "assistant", Content: &empty}, Logprobs: wire.Null})
		e.PromptTokenIDs, e.PromptText = s.idEcho(ch.prompt), wire.Null
		if e.Usage != nil {
			e.Usage.CompletionTokens, e.Usage.TotalTokens = 0, e.Usage.PromptTokens
		}
		s.Write("", e)
	}
}

// token writes the event of one token, if it has one.
func (s *eventStream) token(ch *choice, p piece) {
	// A chat token without text is an event only with logprobs or ids. Text completions have no parser and always send an event
	// (chat_completion/serving.py, completion/serving.py, 0.32).
	if p.silent && ch.finish == "" && s.chat && s.request.Alternatives < 0 && !s.request.ReturnTokenIDs {
		return
	}
	e := s.chunk(ch, s.choice(ch, p))
	e.KVTransferParams = s.endpoints.config().NullSince033()
	if ch.finish != "" {
		if !s.includeUsage() {
			e.SystemFingerprint = s.endpoints.config().Fingerprint()
		}
		if params := s.streamParams(); params != nil && s.paramsPlace() == config.ParamsFinish && ch == s.choices[len(s.choices)-1] {
			e.KVTransferParams = params
		}
	}
	s.Write("", e)
}

func (s *eventStream) choice(ch *choice, p piece) chunkChoice {
	out := chunkChoice{Index: ch.index, Logprobs: s.logprobs(ch.logprobs[max(0, len(ch.logprobs)-1):], s.offset), TokenIDs: wire.Null}
	if s.request.ReturnTokenIDs {
		out.TokenIDs = wire.RawJSON(ch.said)
	}
	if ch.finish != "" {
		out.FinishReason = &ch.finish
	}
	if ch.finish != "" || !s.chat {
		out.StopReason, out.WeightVersions = wire.RawJSON(ch.stopReason), s.endpoints.config().NullSince033()
	}
	if s.chat {
		out.Delta = &delta{}
		if !p.silent {
			out.Delta.Content, out.Delta.Reasoning = p.content, p.reasoning
			if p.call != nil {
				out.Delta.ToolCalls = []toolCallDelta{*p.call}
			}
		}
		return out
	}
	text := ""
	if p.content != nil {
		text = *p.content
	}
	out.PromptTokenIDs = wire.Null
	if len(ch.ids) == 1 {
		out.PromptTokenIDs = s.idEcho(ch.prompt)
		if s.request.Echo {
			text = s.endpoints.tok.Decode(ch.prompt) + text
		}
	}
	s.offset += len([]rune(text))
	out.Text = &text
	return out
}

// tail writes the events behind the last finish chunk: usage, and params with a chunk of their own.
func (s *eventStream) tail() {
	params := s.streamParams()
	if s.includeUsage() && !s.fault.Is(fault.NoUsage) {
		e := s.chunk(nil)
		e.Usage, e.SystemFingerprint = s.usage().delta(), s.endpoints.config().Fingerprint()
		if s.paramsPlace() == config.ParamsUsage {
			e.KVTransferParams = params
		}
		s.Write("", e)
	}
	if s.paramsPlace() == config.ParamsSeparate && params != nil && string(params) != "null" {
		e := s.chunk(nil)
		e.KVTransferParams = params
		s.Write("", e)
	}
}

func (s *eventStream) includeUsage() bool {
	return s.request.StreamOptions != nil && s.request.StreamOptions.IncludeUsage
}

// paramsPlace returns which event of this stream carries the params.
func (s *eventStream) paramsPlace() string {
	place := s.endpoints.config().Params
	if place == config.ParamsUsage && !s.includeUsage() {
		return config.ParamsFinish
	}
	return place
}

func (c *completion) streamParams() json.RawMessage {
	if c.kvParams() == nil && !c.fault.Is(fault.BadParams) {
		return nil
	}
	return c.params()
}

// chunk returns an event of ch with its choices. Both are nil for an event about all choices.
func (s *eventStream) chunk(ch *choice, choices ...chunkChoice) *chunk {
	e := &chunk{ID: s.id, Object: "chat.completion.chunk", Created: s.created, Model: s.endpoints.config().Answered(s.request.Model), Choices: choices}
	if !s.chat {
		e.Object = "text_completion"
	}
	if choices == nil {
		e.Choices = []chunkChoice{}
	} else if s.includeUsage() && s.request.StreamOptions.ContinuousUsageStats && !s.fault.Is(fault.NoUsage) {
		e.Usage = s.continuous(ch).delta()
	}
	return e
}
