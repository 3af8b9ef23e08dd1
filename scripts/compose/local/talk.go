package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// conversation sends its whole history with every turn; odd turns are streamed.
type conversation struct {
	base    string
	id      string
	history []message
	turned  int
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// answer is what a turn showed.
type answer struct {
	id    string // X-Request-Id
	reuse string // X-KV-Reuse
}

const said = "Every night somebody looks at the sea, the wind and the stars from the shore of an island, and writes down what was new."

// turn asks a simulated engine to repeat a sentence, and fails if it says anything else.
func (c *conversation) turn(ctx context.Context) (answer, error) {
	c.turned++
	stream := c.turned%2 == 1
	c.history = append(c.history, message{"user", "SAY " + said})
	body, err := json.Marshal(map[string]any{
		"model": "sim", "max_tokens": 100, "conversation_id": c.id, "stream": stream, "messages": c.history,
	})
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	a := answer{id: "compose-" + rand.Text()[:12]}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", a.id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return answer{}, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	read := readWhole
	if stream {
		read = readStream
	}
	text, err := read(resp.Body)
	if err != nil {
		return answer{}, err
	}
	if text != said {
		return answer{}, fmt.Errorf("the answer is %q", text)
	}
	c.history = append(c.history, message{"assistant", text})
	a.reuse = resp.Header.Get("X-KV-Reuse")
	return a, nil
}

// chunk is an answer, or an event of one.
type chunk struct {
	Choices []struct {
		Message message `json:"message"`
		Delta   message `json:"delta"`
	} `json:"choices"`
}

func readWhole(body io.Reader) (string, error) {
	var whole chunk
	if err := json.NewDecoder(body).Decode(&whole); err != nil {
		return "", err
	}
	if len(whole.Choices) != 1 {
		return "", fmt.Errorf("an answer of %d choices", len(whole.Choices))
	}
	return whole.Choices[0].Message.Content, nil
}

func readStream(body io.Reader) (string, error) {
	var text strings.Builder
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if data == "[DONE]" {
			return text.String(), nil
		}
		var event chunk
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return "", err
		}
		for _, choice := range event.Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
	return "", fmt.Errorf("the stream ends without [DONE]: %w", lines.Err())
}

// get fails unless the answer has a status.
func get(ctx context.Context, url, token string, status int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		return nil, fmt.Errorf("GET %s: status %d, want %d", url, resp.StatusCode, status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 1<<20))
}
