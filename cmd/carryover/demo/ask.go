package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"carryover/server/record"
)

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatAnswer is the result of one streamed turn.
type chatAnswer struct {
	text         string
	ttft         time.Duration
	promptTokens int
	reuse        string
	path         string
	requestID    string
}

// chatBody returns the body of a streaming turn. Answers are as long as those of a model that explains something: prefill reads KV from
// decode only if it lacks 64 tokens or more (kv_recompute_threshold of vLLM), and computes a shorter answer itself.
func chatBody(messages []chatMessage, extra map[string]any) ([]byte, error) {
	body := map[string]any{
		"model": "sim", "messages": messages, "stream": true, "temperature": 0, "min_tokens": 100, "max_tokens": 160,
		"stream_options": map[string]any{"include_usage": true},
	}
	maps.Copy(body, extra)
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	return encoded, nil
}

// ask sends one turn and reads its answer whole.
func (d *conversationDemo) ask(ctx context.Context, messages []chatMessage, extra map[string]any, header http.Header) (chatAnswer, error) {
	body, err := chatBody(messages, extra)
	if err != nil {
		return chatAnswer{}, err
	}
	return d.send(ctx, body, header)
}

func (d *conversationDemo) send(ctx context.Context, body []byte, header http.Header) (chatAnswer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return chatAnswer{}, fmt.Errorf("ask: %w", err)
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return chatAnswer{}, fmt.Errorf("ask: %w", err)
	}
	defer resp.Body.Close()
	answer := chatAnswer{reuse: resp.Header.Get("X-KV-Reuse"), path: resp.Header.Get("X-KV-Path"), requestID: resp.Header.Get("X-Request-Id")}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return answer, fmt.Errorf("ask: status %d: %s", resp.StatusCode, text)
	}
	return answer, answer.read(resp.Body, began)
}

func (a *chatAnswer) read(body io.Reader, began time.Time) error {
	lines := bufio.NewReader(body)
	var text strings.Builder
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("ask: stream ended early: %w", err)
		}
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			a.text = text.String()
			// The rest, if any, must be read for the connection to be used again.
			_, err := io.Copy(io.Discard, lines)
			return err
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
			Usage   struct {
				PromptTokens int `json:"prompt_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			if a.ttft == 0 {
				a.ttft = time.Since(began)
			}
			text.WriteString(chunk.Choices[0].Delta.Content)
		}
		a.promptTokens = max(a.promptTokens, chunk.Usage.PromptTokens)
	}
}

// records remembers what is known of each turn: its instances, and what prefill took from its cache. Clients never learn the former.
type records struct {
	mu   sync.Mutex // guards seen
	seen map[string]chan record.Turn
}

func newRecords() *records { return &records{seen: map[string]chan record.Turn{}} }

// observe is a record.Observer.
func (r *records) observe(rec *record.Turn) {
	if turn := r.turn(rec.Turn); turn != nil {
		turn <- *rec
	}
}

// turn returns the channel of a turn. It holds the turn's only record. After end it
// is nil, so that a demo that keeps serving remembers nothing.
func (r *records) turn(id string) chan record.Turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		return nil
	}
	if r.seen[id] == nil {
		r.seen[id] = make(chan record.Turn, 1)
	}
	return r.seen[id]
}

func (r *records) end() {
	r.mu.Lock()
	r.seen = nil
	r.mu.Unlock()
}

// of waits for the record of a turn. It comes at about the same time as the turn's last byte.
func (r *records) of(ctx context.Context, id string) *record.Turn {
	select {
	case rec := <-r.turn(id):
		return &rec
	case <-ctx.Done():
		return &record.Turn{}
	}
}
