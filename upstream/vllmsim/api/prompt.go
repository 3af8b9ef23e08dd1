package api

import (
	"encoding/json"
	"net/http"
	"slices"

	"carryover/upstream/vllmsim/request"
	"carryover/upstream/vllmsim/template"
	"carryover/upstream/vllmsim/wire"
)

type input struct {
	ids       []int32
	media     []uint64 // by position, see template/media.go; nil for text alone
	forwarded bool     // the ids came with the request
}

// chatPrompt returns the prompt of a chat request: the forwarded ids, or the rendered and encoded conversation.
func (s *Endpoints) chatPrompt(r *request.Completion) (input, error) {
	c := r.Conversation(true)
	if s.config().PromptTokenIDs && !r.Echo && c.OnlyText() {
		ids, ok, err := request.PromptTokenIDs(r.Params)
		if err != nil {
			return input{}, err
		}
		if ok {
			return input{ids: ids, forwarded: true}, s.checkVocabulary(ids)
		}
	}
	return s.renderPrompt(c)
}

func (s *Endpoints) renderPrompt(c *template.Conversation) (input, error) {
	text, err := c.Render(s.config().Template)
	if err != nil {
		return input{}, wire.BadRequest("", "%s", err)
	}
	items, err := c.Media()
	if err != nil {
		return input{}, wire.BadRequest("", "%s", err)
	}
	p := input{}
	p.ids, p.media = template.Encode(s.tok, text, items)
	return p, nil
}

// textPrompts returns the ids of each prompt of a text completion: a string, a list of strings, ids, or lists of ids.
func (s *Endpoints) textPrompts(raw json.RawMessage) ([][]int32, error) {
	var one string
	var texts []string
	var ids []int32
	var lists [][]int32
	switch {
	case json.Unmarshal(raw, &one) == nil:
		lists = [][]int32{s.tok.Encode(one)}
	case json.Unmarshal(raw, &texts) == nil:
		for _, text := range texts {
			lists = append(lists, s.tok.Encode(text))
		}
	case json.Unmarshal(raw, &ids) == nil:
		lists = [][]int32{ids}
	default:
		_ = json.Unmarshal(raw, &lists) // anything else is an empty prompt
	}
	if len(lists) == 0 || slices.ContainsFunc(lists, func(list []int32) bool { return len(list) == 0 }) {
		return nil, wire.BadRequest("prompt", "The decoder prompt cannot be empty")
	}
	return lists, s.checkVocabulary(slices.Concat(lists...))
}

func (s *Endpoints) checkVocabulary(ids []int32) error {
	for _, id := range ids {
		if !s.tok.Valid(id) {
			return wire.BadRequest("", "Token id %d is out of vocabulary", id)
		}
	}
	return nil
}

// outputLimit returns the request's limit of output tokens, or all that prompt leaves of max_model_len. It refuses a prompt that leaves less.
func (s *Endpoints) outputLimit(r *request.Completion, prompt []int32) (int, error) {
	asked, name := r.Limit()
	if most := s.config().MaxModelLen; asked > most { // TokenizeParams, renderers/params.py
		return 0, wire.BadRequest(name, "%s=%d cannot be greater than max_model_len=%d. Please request fewer output tokens. (parameter=%s, value=%d)", name, asked, most, name, asked)
	}
	room := s.config().MaxModelLen - len(prompt)
	if room < max(asked, 1) {
		return 0, wire.BadRequest("input_tokens", "You passed %d input tokens and requested %d output tokens. However, the model's context length is only %d tokens, resulting in a maximum input length of %d tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=%d)",
			len(prompt), asked, s.config().MaxModelLen, s.config().MaxModelLen-asked, len(prompt))
	}
	if asked == 0 {
		return room, nil
	}
	return asked, nil
}

type tokenizeAnswer struct {
	Count       int     `json:"count"`
	MaxModelLen int     `json:"max_model_len"`
	Tokens      []int32 `json:"tokens"`
	TokenStrs   any     `json:"token_strs"` // null without return_token_strs, which no request here sets
}

func (s *Endpoints) serveTokenize(w http.ResponseWriter, req *http.Request) error {
	r, err := readRequest(req)
	if err != nil {
		return err
	}
	if err := s.checkModel(r.Model); err != nil {
		return err
	}
	var ids []int32
	if r.Messages != nil {
		var p input
		p, err = s.renderPrompt(r.Conversation(false))
		ids = p.ids
	} else {
		var text string
		err = json.Unmarshal(r.Prompt, &text)
		ids = s.tok.Encode(text)
	}
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, tokenizeAnswer{Count: len(ids), MaxModelLen: s.config().MaxModelLen, Tokens: ids})
}
