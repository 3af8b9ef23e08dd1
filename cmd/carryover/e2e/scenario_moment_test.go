package e2e

import (
	"context"
	"testing"
)

// These tests act at moments that the steps of a scenario file cannot name.

// chat sends one chat turn. It may be called from any goroutine.
func (r *rig) chat(ctx context.Context, conversation string, stream bool, h *history, watch func(int, []byte)) (*answered, error) {
	body := encode(object{
		"model": "sim", "messages": h.messages, "stream": stream, "max_tokens": 60_000, "conversation_id": conversation,
	})
	return r.post(ctx, "/v1/chat/completions", nil, body, watch)
}

func unwatched(int, []byte) {}

func TestStream_EventReachesClientBeforeTheNext(t *testing.T) {
	// Ten tokens of 200 ms are more than a busy machine stands still for.
	r := startRig(t, rigConfig{taught: true, cfg: engineWith(`{"timing":{"inter_token":200000000}}`)})
	h := &history{}
	h.askChat("auto", "", 1)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	_, err := r.chat(ctx, "a", true, h, func(event int, _ []byte) {
		// An event is 200 bytes long: a buffer of 4 KiB would be 20 tokens behind.
		if ahead := r.atDecode("generated_tokens") - event; ahead > 10 {
			t.Errorf("event %d reaches the client %d tokens late", event, ahead)
		}
		if event == 5 {
			leave()
		}
	})
	noError(t, err)
	r.verify(t, pins{})
}
