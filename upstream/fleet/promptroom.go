package fleet

import (
	"context"
	"sync"
)

// promptRoom is memory for a question for a prompt, and for its answer. They are most of what a short turn under the token proof
// would allocate: 37 kB of 55, with prompts of 2,600 tokens.
type promptRoom struct {
	of       *promptRooms
	question []byte
	answer   []byte
	ids      []uint32
}

// maxPromptRoom is the most that is kept of one, in bytes: some 60,000 tokens.
const maxPromptRoom = 1 << 20

// promptRooms are those that serve no prompt.
type promptRooms struct{ pool sync.Pool }

func (p *promptRooms) take() *promptRoom {
	if room, ok := p.pool.Get().(*promptRoom); ok {
		return room
	}
	return &promptRoom{of: p}
}

// postIn is post, into room.
func (s *Start) postIn(ctx context.Context, path string, body []byte, authorization string, room *promptRoom) (status int, err error) {
	status, answer, err := s.engine.fleet.cfg.Client.PostInto(ctx, &s.engine.Instance, path, body, authorization, room.answer)
	if err == nil {
		room.answer = answer
	} else {
		room.answer = room.answer[:0]
	}
	return status, err
}

// read reads the answer, see readPrompt.
func (r *promptRoom) read(name string) (Prompt, error) {
	prompt, err := readPrompt(r.answer, name, r.ids)
	if err == nil {
		r.ids, prompt.room = prompt.IDs, r
	}
	return prompt, err
}

// Done gives the memory of the prompt back for another. Nothing may use IDs or List afterwards, nor a copy of the Prompt. Where that
// is not certain, Done is not called, and the memory is the prompt's for good.
func (p *Prompt) Done() {
	room := p.room
	*p = Prompt{}
	if room == nil || cap(room.question)+cap(room.answer)+4*cap(room.ids) > maxPromptRoom {
		return
	}
	room.of.pool.Put(room)
}
