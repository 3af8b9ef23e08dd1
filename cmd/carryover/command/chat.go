package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Message is a message of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// NewMessage returns a message of a role.
func NewMessage(role, content string) Message { return Message{role, content} }

// Answer is a client's view of a completion.
type Answer struct {
	Status       int
	Header       http.Header
	Body         []byte // of an answer that is no stream
	Text         string // of the first choice
	PromptTokens int    // 0 if the answer has no usage
	Done         bool   // the stream ended with [DONE]
	Pace         Pace
}

// Pace is the timing of a stream's events with text.
type Pace struct {
	Events int
	First  time.Duration // from the request to the first event
	Spread time.Duration // from the first event to the last
	Waits  int           // events at least 1 ms after the one before
}

const maxAnswer = 4 << 20

// Complete sends a chat or text completion, and reads the answer to its end.
func Complete(ctx context.Context, client *http.Client, url string, body []byte, header http.Header) (answer Answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer, fmt.Errorf("ask: %w", err)
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return answer, fmt.Errorf("ask: %w", err)
	}
	defer resp.Body.Close()
	answer.Status, answer.Header = resp.StatusCode, resp.Header
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		answer.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		answer.add(answer.Body)
		return answer, err
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: ")); ok && answer.add(data) {
			answer.Pace.add(time.Since(began))
		}
		if err == io.EOF {
			return answer, nil
		}
		if err != nil {
			return answer, fmt.Errorf("ask: %w", err)
		}
	}
}

// add reads an event or a whole answer, and reports whether it has text.
func (a *Answer) add(data []byte) bool {
	var said struct {
		Choices []struct {
			Index          int
			Text           string
			Delta, Message struct{ Content string }
		}
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	if a.Done = string(data) == "[DONE]"; a.Done || json.Unmarshal(data, &said) != nil {
		return false
	}
	a.PromptTokens = max(a.PromptTokens, said.Usage.PromptTokens)
	if len(said.Choices) == 0 {
		return false
	}
	choice := said.Choices[0]
	text := choice.Text + choice.Delta.Content + choice.Message.Content
	if choice.Index == 0 {
		a.Text += text
	}
	return text != ""
}

func (p *Pace) add(at time.Duration) {
	if p.Events++; p.Events == 1 {
		p.First = at
	} else if at-p.First-p.Spread >= time.Millisecond {
		p.Waits++
	}
	p.Spread = at - p.First
}
