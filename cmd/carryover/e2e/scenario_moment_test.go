package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
)

// These tests act at moments that the steps of a scenario file cannot name.

func startPair(t *testing.T, change func(*vllmsim.Config), flags ...string) *rig {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	change(&cfg)
	return startRig(t, rigConfig{
		cfg: cfg, flags: flags, taught: true,
	})
}

func asConfigured(*vllmsim.Config) {}

// chat sends one chat turn. It may be called from any goroutine.
func (r *rig) chat(ctx context.Context, conversation string, stream bool, h *history, watch func(int, []byte)) (*answered, error) {
	body := encode(map[string]any{
		"model": "sim", "messages": h.messages, "stream": stream, "max_tokens": 60_000, "conversation_id": conversation,
	})
	return r.post(ctx, "/v1/chat/completions", http.Header{}, body, watch)
}

func unwatched(int, []byte) {}

func TestStream_EventReachesClientBeforeTheNext(t *testing.T) {
	const apart = 200 * time.Millisecond // ten tokens are more than a busy machine stands still for
	r := startPair(t, func(cfg *vllmsim.Config) { cfg.Timing.InterToken = apart })
	h := &history{}
	h.askChat("auto", "", 1)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	_, err := r.chat(ctx, "a", true, h, func(event int, _ []byte) {
		// An event is 200 bytes long: a buffer of 4 KiB would be 20 tokens behind.
		if ahead := r.sum(t, config.RoleDecode)["generated_tokens"] - event; ahead > 10 {
			t.Errorf("event %d reaches the client %d tokens late", event, ahead)
		}
		if event == 5 {
			leave()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.verify(t, pins{})
}

// TestAnswer_SameWithAndWithoutConversation guards against a relay that edits, splits or
// loses what it should only look at, for answers on both sides of common buffer sizes.
func TestAnswer_SameWithAndWithoutConversation(t *testing.T) {
	t.Parallel()
	r := startPair(t, func(cfg *vllmsim.Config) { cfg.PromptTokensDetails, cfg.Blocks = true, 1<<16 }) // every answer stays pinned
	plain := 0
	for _, size := range []int{1, 4095, 4096, 4097, 20_000} {
		for _, stream := range []bool{true, false} {
			script := strings.Repeat("Stone. ", size/7) + strings.Repeat("x", size%7+1)
			for _, id := range []string{fmt.Sprintf("%d-%v", size, stream), ""} {
				members := map[string]any{
					"model": "sim", "max_tokens": 60_000, "stream": stream, "cache_salt": fmt.Sprintf("%s/%d/%v", id, size, stream),
					"messages": []map[string]string{{"role": "user", "content": "SAY " + script}},
				}
				if stream {
					members["stream_options"] = map[string]bool{"include_usage": true}
				}
				if id != "" {
					members["conversation_id"] = id
				} else {
					plain++
				}
				a, err := r.post(t.Context(), "/v1/chat/completions", http.Header{}, encode(members), unwatched)
				if err != nil {
					t.Fatal(err)
				}
				if a.content != script {
					t.Errorf("%d bytes, stream %v, conversation %q: got %d bytes of content", len(script), stream, id, len(a.content))
				}
				if !strings.Contains(a.usage, `"prompt_tokens_details":{"cached_tokens":0`) {
					t.Errorf("%d bytes, stream %v, conversation %q: usage %s", len(script), stream, id, a.usage)
				}
			}
		}
	}
	r.verify(t, pins{unused: plain})
}
