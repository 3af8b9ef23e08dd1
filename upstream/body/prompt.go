package body

import (
	"bytes"

	"carryover/sse/rawjson"
)

// promptKind is the shape of a text completion's prompt.
type promptKind int

// The kinds of prompt. promptNone also stands for what vLLM will refuse: a prompt of another type, an empty list.
const (
	promptNone promptKind = iota
	promptText
	promptTokens
	promptTextBatch
	promptTokensBatch
)

// Prompt is what engines render of a request: the history or text to be continued, and what stands before it. It
// aliases the request.
type Prompt struct {
	api     API
	body    *rawjson.Object
	history *rawjson.List // messages or input items
}

// Prompt returns the request's prompt.
func (r *Request) Prompt() Prompt { return Prompt{r.api, &r.body, &r.messages} }

// Text returns a text completion's prompt as the client wrote it, nil if there is none.
func (p Prompt) Text() []byte { return p.body.Get("prompt") }

// kind returns the kind of a text completion's prompt. A list is judged by its first element; vLLM refuses lists of
// mixed kinds.
func (p Prompt) kind() promptKind {
	raw := p.Text()
	if rawjson.IsNull(raw) {
		return promptNone
	}
	if raw[0] == '"' {
		return promptText
	}
	if raw[0] != '[' {
		return promptNone
	}
	switch first := bytes.TrimLeft(raw[1:], " \t\r\n")[0]; {
	case first == '"':
		return promptTextBatch
	case first == '[':
		return promptTokensBatch
	case first == '-' || '0' <= first && first <= '9':
		return promptTokens
	}
	return promptNone
}

// IDs returns the ids of a text completion whose prompt is a list of ids. Engines compute exactly these: they neither
// render nor add to them.
func (p Prompt) IDs() (ids []uint32, ok bool) {
	if p.api != Text || p.kind() != promptTokens {
		return nil, false
	}
	ids, ok = rawjson.ParseIDs(p.Text())
	return ids, ok && len(ids) > 0
}

// Plain reports whether the token ids of the prompt determine all of it. Images, audio, video and files are
// placeholders among the ids: all images of one size have the same ones, and a text can spell them. Messages that
// can't be read are not plain text either.
func (p Prompt) Plain() bool {
	switch p.api {
	case Text:
		return true // other prompts are not disaggregated
	case Messages, Responses:
		return p.plainHistory()
	}
	var f features
	return rawjson.IsNull(p.body.Get("mm_payload")) && f.addMessages(p.history) == ""
}
