package engines

import "time"

// reply is decode's answer to a request, and what decode keeps afterwards.
type reply struct {
	engine *engine
	whole
	says         AnswerText
	chunkIDs     bool
	conversation uint64
	covers       [keptCovers]cover // of the prompt, the last first
	holds        bool              // decode keeps the KV, because the request had params
	showIDs      bool
}

// reply makes the answer to a request. It keeps no part of the body.
func (e *engine) reply(r *chatRequest, requestID []byte, p *Pace) reply {
	out := reply{
		engine: e, chunkIDs: p.ChunkIDs, conversation: r.conversation, holds: r.params.present,
		says: AnswerTo(r.conversation, len(r.messages)), showIDs: r.returnIDs,
		whole: whole{created: time.Now().Unix(), requestID: requestID, finish: "stop", tokens: r.tokens(), output: max(1, p.Chunks), vllm: p.VLLM},
	}
	if r.maxTokens >= 1 && r.maxTokens < out.output {
		out.finish, out.output = "length", r.maxTokens
	}
	for i := range min(keptCovers, len(r.covers)) {
		out.covers[i] = r.covers[len(r.covers)-1-i]
	}
	if out.showIDs {
		out.prompt = e.rendered.prompt(nil, r)
	}
	return out
}

// textTokens returns how many tokens of the answer have text. The end token has none.
func (r *reply) textTokens() int {
	if r.finish == "stop" {
		return r.output - 1
	}
	return r.output
}

func (r *reply) outputIDs(dst, text []byte) []byte {
	dst = r.engine.numerals.text(append(dst, '['), text)
	if r.finish == "stop" {
		dst = r.engine.numerals.add(dst, endID)
	}
	return closed(dst)
}

// leave keeps the KV of prompt and answer for the next reader, and appends the params that name it.
func (r *reply) leave(dst []byte) []byte {
	scratch := r.engine.scratches.get()
	defer r.engine.scratches.give(scratch)
	text := r.says.Whole(*scratch, r.textTokens())
	h := holding{conversation: r.conversation, tokens: r.tokens + r.output - 1}
	copy(h.covers[1:], r.covers[:])
	h.covers[0] = r.covers[0].extend(r.engine.seed, message{role: []byte("assistant"), text: text})
	h = r.engine.ledger.keep(h)
	var output []byte
	if !r.chunkIDs {
		output = r.outputIDs(text[len(text):], text)
	}
	*scratch = text
	return r.engine.appendParams(dst, r.requestID, &h, 0, output)
}

func (r *reply) message(dst []byte) []byte {
	r.text = r.says.Whole(nil, r.textTokens())
	if r.showIDs {
		r.ids = r.outputIDs(nil, r.text)
	}
	if r.holds {
		r.params = r.leave(nil)
	}
	return r.append(append(dst, make([]byte, headRoom)...))
}
