package body

import (
	"bytes"
	"hash/maphash"

	"carryover/sse/rawjson"
)

// Prompt is the part of a request that engines render: the history or text to be continued, and what stands before it. It
// aliases the request.
type Prompt struct {
	api     API
	body    *rawjson.Object
	history *rawjson.List // messages or input items
}

// Prompt returns the request's prompt.
func (r *Request) Prompt() Prompt { return Prompt{r.API, &r.body, &r.messages} }

// Text returns a text completion's prompt as the client wrote it, nil for none.
func (p Prompt) Text() []byte { return p.body.Get("prompt") }

// IDs returns the ids of a text completion whose prompt is a list of ids. Engines compute exactly these: they neither
// render nor add.
func (p Prompt) IDs() (ids []uint32, ok bool) {
	if p.api != Text || p.kind() != promptTokens {
		return nil, false
	}
	ids, ok = rawjson.ParseIDs(p.Text())
	return ids, ok && len(ids) > 0
}

type promptKind int

// promptNone also stands for prompts that vLLM will refuse: another type, an empty list.
const (
	promptNone promptKind = iota
	promptText
	promptTokens
	promptTextBatch
	promptTokensBatch
)

// kind judges a list by its first element; vLLM refuses lists of mixed kinds.
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

// Plain reports whether the prompt's token ids determine all of it. Images, audio, video and files are placeholders among
// the ids: all images of one size have the same ones, and a text can spell them. Unreadable messages are not plain.
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

// A chain has a hash for each KiB of the beginning of a prompt, up to MaxChain: 128 KiB are some 32,000 tokens, and take
// 15 µs to hash.
const (
	MaxChain   = 128
	ChainPiece = 1 << 10
)

// Chain returns one hash per full piece of the beginning of the client's prompt, each over everything up to the piece's
// end. Two requests with an equal hash begin alike up to there, so an engine that computed one has the other's beginning
// in its prefix cache. Model, cache salt and tools, which templates print first, belong to the beginning. Chain hashes the
// bytes of the request, so JSON in another spelling is not recognised; the hashes help to pick an instance and prove
// nothing. The chain is nil for prompts of less than a piece.
//
// The seed is random per process, so no client can make its prompts look like another's.
func (p Prompt) Chain(seed maphash.Seed) []uint64 {
	parts := p.parts()
	n := min(p.Bytes()/ChainPiece, MaxChain)
	if n == 0 {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.Write(p.body.Get("model")) // a hash never fails
	_ = h.WriteByte(apart)
	_, _ = h.Write(p.body.Get("cache_salt"))
	chain := make([]uint64, 0, n)
	left := ChainPiece
	for _, part := range parts {
		_ = h.WriteByte(apart)
		for len(part) >= left && len(chain) < n {
			_, _ = h.Write(part[:left])
			chain, part, left = append(chain, h.Sum64()), part[left:], ChainPiece
		}
		if len(chain) == n {
			break
		}
		_, _ = h.Write(part)
		left -= len(part)
	}
	return chain
}

// Bytes returns how many bytes Chain would hash without its bound.
func (p Prompt) Bytes() (n int) {
	for _, part := range p.parts() {
		n += len(part)
	}
	return n
}

func (p Prompt) parts() (parts [3][]byte) {
	parts[2] = p.body.Get(p.api.subject())
	if p.api != Text {
		parts[0] = p.body.Get("tools")
	}
	if p.api.Rendered() {
		parts[1] = p.preamble()
	}
	if last := parts[2]; len(last) > 0 {
		parts[2] = last[:len(last)-1] // without the end of the list or text, where a longer prompt goes on
	}
	return parts
}

// apart separates the parts of a chain: the byte occurs in no UTF-8.
const apart = 0xff

// textBudget is the max_tokens of a text completion without it, or with null (normalize_null_max_tokens, completion/protocol.py, vLLM 0.32).
const textBudget = 16

// Budget returns the most and the least tokens of the answer, as get_max_tokens reads them (serve/utils/api_utils.py, vLLM
// 0.32). most is 0 if the answer may use up the context. ok is false for numbers that engines refuse.
func (r *Request) Budget() (most, least int, ok bool) {
	limit := r.body.Get("max_tokens")
	switch r.API {
	case Chat:
		if newer := r.body.Get("max_completion_tokens"); !rawjson.IsNull(newer) {
			limit = newer
		}
	case Responses:
		limit = r.body.Get("max_output_tokens")
	}
	switch {
	case !rawjson.IsNull(limit):
		if most, ok = rawjson.Integer(limit); !ok || most < 1 {
			return 0, 0, false
		}
	case r.API == Text:
		most = textBudget
	}
	if raw := r.body.Get("min_tokens"); raw != nil && !r.API.Rendered() { // null is refused
		if least, ok = rawjson.Integer(raw); !ok || least < 0 || most > 0 && least > most {
			return 0, 0, false
		}
	}
	return most, least, true
}
