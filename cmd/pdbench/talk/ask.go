package talk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// ask sends one streaming turn of a conversation, "" for none, with at most this number of tokens in the answer, and reads the whole answer.
// A stream without [DONE], or with an error event, has failed.
func (c *Client) ask(ctx context.Context, id string, messages []message, most int) (turn Turn, answer message) {
	members := map[string]any{
		"model": "sim", "messages": messages, "stream": true, "max_tokens": most, "temperature": 0,
		"stream_options": map[string]bool{"include_usage": true},
	}
	if id != "" {
		members["conversation_id"] = id
	}
	body, err := json.Marshal(members)
	if err != nil {
		return Turn{Err: err}, message{}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return Turn{Err: err}, message{}
	}
	req.Header.Set("Content-Type", "application/json")
	turn.Began = time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		turn.Err = err
		return turn, message{}
	}
	defer resp.Body.Close()
	turn.Reuse = resp.Header.Get("X-KV-Reuse")
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // as much as there is
		turn.Err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
		return turn, message{}
	}
	answer, turn.Err = turn.read(resp.Body)
	return turn, answer
}

// event has the members of a chunk that a client reads.
type event struct {
	Choices []struct {
		Delta message `json:"delta"`
	} `json:"choices"`
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

func (t *Turn) read(from io.Reader) (message, error) {
	answer := message{Role: "assistant"}
	var text strings.Builder
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			answer.Content = text.String()
			return answer, nil
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return message{}, fmt.Errorf("event %q: %w", data, err)
		}
		if e.Error != nil {
			return message{}, fmt.Errorf("error event %s", e.Error)
		}
		if e.Usage.Prompt > 0 {
			t.Prompt, t.Answer = e.Usage.Prompt, e.Usage.Completion
		}
		for _, choice := range e.Choices {
			if choice.Delta.Content != "" && t.TTFT == 0 {
				t.TTFT = time.Since(t.Began)
			}
			text.WriteString(choice.Delta.Content)
		}
	}
	return message{}, errors.Join(errors.New("the stream broke off"), lines.Err())
}
