package fleet

import (
	"context"
	"sync"

	"carryover/upstream"
)

// promptBuffer is memory for the answer to a question for a prompt. With that of the question it is most of what a short turn under the
// token proof would allocate: 37 kB of 55, with prompts of 2,600 tokens.
type promptBuffer struct {
	of     *promptBuffers
	answer []byte
	ids    []uint32
}

// questionBuffer is memory for a question for a prompt. It is as large as the request, and is needed no longer than until the engine has answered.
type questionBuffer struct{ body []byte }

// maxPromptBuffer is the most that is kept of either, in bytes: an answer with some 60,000 tokens.
const maxPromptBuffer = 1 << 20

// promptBuffers are those that serve no prompt.
type promptBuffers struct{ pool, asked sync.Pool }

func (p *promptBuffers) take() *promptBuffer {
	if buffer, ok := p.pool.Get().(*promptBuffer); ok {
		return buffer
	}
	return &promptBuffer{of: p}
}

// ask returns memory for a question.
func (p *promptBuffers) ask() *questionBuffer {
	if a, ok := p.asked.Get().(*questionBuffer); ok {
		return a
	}
	return &questionBuffer{}
}

// done takes the memory of a question that has its answer: it is written, and net/http has a copy of what it may still write.
func (p *promptBuffers) done(a *questionBuffer) {
	if cap(a.body) <= maxPromptBuffer {
		p.asked.Put(a)
	}
}

// post asks an instance, and takes its answer.
func (r *promptBuffer) post(
	ctx context.Context, client *upstream.Client, at *upstream.Instance, path string, body []byte, authorization string,
) (status int, err error) {
	status, answer, err := client.PostInto(ctx, at, path, body, authorization, r.answer)
	if err == nil {
		r.answer = answer
	} else {
		r.answer = r.answer[:0]
	}
	return status, err
}

// read reads the answer, see readPrompt.
func (r *promptBuffer) read(name string) (Prompt, error) {
	prompt, err := readPrompt(r.answer, name, r.ids)
	if err == nil {
		r.ids, prompt.buffer = prompt.IDs, r
	}
	return prompt, err
}

// Done gives the memory of the prompt back for another. Nothing may use IDs or List afterwards, nor a copy of the Prompt. Where that
// is not certain, Done is not called, and the memory is the prompt's for good.
func (p *Prompt) Done() {
	buffer := p.buffer
	*p = Prompt{}
	if buffer == nil || cap(buffer.answer)+4*cap(buffer.ids) > maxPromptBuffer {
		return
	}
	buffer.of.pool.Put(buffer)
}
