package main

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

// spoken is one turn as its client saw it.
type spoken struct {
	id    string // X-Request-Id
	first bool   // of its conversation
	began time.Time
	ttft  time.Duration // wall time
	hit   bool
	err   error
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// client talks to one proxy.
type client struct {
	http  *http.Client
	base  string
	scale float64
}

// hold has one conversation until its end or its first failure.
func (c *client) hold(ctx context.Context, talk conversation) (list []spoken) {
	messages := []message{{"system", talk.system}}
	if sleep(ctx, talk.begins, c.scale) != nil {
		return nil
	}
	for n, q := range talk.turns {
		if sleep(ctx, q.think, c.scale) != nil {
			return list
		}
		messages = append(messages, message{"user", q.text})
		turn, answer := c.ask(ctx, talk.id, messages, answerTokens)
		turn.first = n == 0
		list = append(list, turn)
		if turn.err != nil {
			return list
		}
		messages = append(messages, message{"assistant", answer})
	}
	return list
}

// answerTokens is a short answer's limit: decode is not what is measured.
const answerTokens = 32

// ask sends one streaming turn and reads it whole. A stream that does not end with [DONE], or that has an error event, has failed.
func (c *client) ask(ctx context.Context, id string, messages []message, limit int) (turn spoken, answer string) {
	body, err := json.Marshal(map[string]any{
		"model": "sim", "messages": messages, "stream": true, "max_tokens": limit, "temperature": 0, "conversation_id": id,
	})
	if err != nil {
		return spoken{err: err}, ""
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return spoken{err: err}, ""
	}
	req.Header.Set("Content-Type", "application/json")
	turn.began = time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		turn.err = err
		return turn, ""
	}
	defer resp.Body.Close()
	turn.id = resp.Header.Get("X-Request-Id")
	turn.hit = strings.HasPrefix(resp.Header.Get("X-KV-Reuse"), "hit")
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // what there is of it
		turn.err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
		return turn, ""
	}
	answer, turn.err = turn.read(resp.Body)
	return turn, answer
}

func (s *spoken) read(from io.Reader) (string, error) {
	var answer strings.Builder
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			return answer.String(), nil
		}
		var event struct {
			Choices []struct {
				Delta message `json:"delta"`
			} `json:"choices"`
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return "", fmt.Errorf("event %q: %w", data, err)
		}
		if event.Error != nil {
			return "", fmt.Errorf("error event %s", event.Error)
		}
		for _, choice := range event.Choices {
			if choice.Delta.Content != "" && s.ttft == 0 {
				s.ttft = time.Since(s.began)
			}
			answer.WriteString(choice.Delta.Content)
		}
	}
	return "", errors.Join(errors.New("the stream broke off"), lines.Err())
}

// sleep passes engine time.
func sleep(ctx context.Context, d time.Duration, scale float64) error {
	timer := time.NewTimer(time.Duration(float64(d) / scale))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
