package facts

import (
	"context"
	"sync"

	"carryover/upstream"
)

// promptBuffer is reusable memory for an engine's answer about a prompt. With that for the question, it is most of
// what a short turn under the token proof would allocate: 37 of 55 kB, for prompts of 2,600 tokens.
type promptBuffer struct {
	of     *promptBuffers
	answer []byte
	ids    []uint32
}

// questionBuffer is reusable memory for a question about a prompt. It is as large as the request, and is needed only
// until the engine has answered.
type questionBuffer struct{ body []byte }

// maxPromptBuffer is the largest buffer of either kind that is kept, in bytes: an answer with some 60,000 tokens.
const maxPromptBuffer = 1 << 20

// promptBuffers are the buffers that are free.
type promptBuffers struct{ pool, asked sync.Pool }

func (p *promptBuffers) take() *promptBuffer {
	if buffer, ok := p.pool.Get().(*promptBuffer); ok {
		return buffer
	}
	return &promptBuffer{of: p}
}

// ask returns a buffer for a question.
func (p *promptBuffers) ask() *questionBuffer {
	if a, ok := p.asked.Get().(*questionBuffer); ok {
		return a
	}
	return &questionBuffer{}
}

// done takes back the buffer of a question that was answered: the question is written by then, and net/http has its
// own copy of what it may still write.
func (p *promptBuffers) done(a *questionBuffer) {
	if cap(a.body) <= maxPromptBuffer {
		p.asked.Put(a)
	}
}

// post sends a question to an instance and reads the answer into the buffer.
func (r *promptBuffer) post(
	ctx context.Context, client *upstream.Client, at *upstream.Instance, path string, body []byte, authorization string,
) (status int, err error) {
	status, answer, err := client.Post(ctx, at, path, body, authorization, r.answer)
	if err == nil {
		r.answer = answer
	} else {
		r.answer = r.answer[:0]
	}
	return status, err
}

// read parses the answer, see readPrompt.
func (r *promptBuffer) read(name string) (Prompt, error) {
	prompt, err := readPrompt(r.answer, name, r.ids)
	if err == nil {
		r.ids, prompt.buffer = prompt.IDs, r
	}
	return prompt, err
}

// Done gives the prompt's buffer back for other prompts. Nothing may use IDs, List or a copy of the Prompt afterwards.
// A caller that is not certain of that does not call Done, and the memory stays the prompt's.
func (p *Prompt) Done() {
	buffer := p.buffer
	*p = Prompt{}
	if buffer == nil || cap(buffer.answer)+4*cap(buffer.ids) > maxPromptBuffer {
		return
	}
	buffer.of.pool.Put(buffer)
}
