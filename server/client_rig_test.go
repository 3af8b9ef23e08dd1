package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// reply is an answer as a client got it.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // how reading the body ended, nil for a clean end
}

func (p reply) reuse() string {
	values := p.header["X-Kv-Reuse"] // Go's client canonicalises
	if len(values) != 1 {
		return fmt.Sprintf("%d values", len(values))
	}
	return values[0]
}

const chatPath, textPath = "/v1/chat/completions", "/v1/completions"

// ask returns a chat request: conversation id ("" for none) and texts that alternate between user and assistant.
func ask(conversation string, stream bool, texts ...string) string {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	request := map[string]any{"model": "m", "stream": stream}
	messages := make([]message, 0, len(texts))
	for i, text := range texts {
		messages = append(messages, message{[]string{"user", "assistant"}[i%2], text})
	}
	request["messages"] = messages
	if conversation != "" {
		request["conversation_id"] = conversation
	}
	b, _ := json.Marshal(request) // strings and bools always can be
	return string(b)
}

// send posts a chat request; header is names and values in turn.
func (r *rig) send(body string, header ...string) reply {
	r.t.Helper()
	return r.sendTo(chatPath, body, header...)
}

func (r *rig) sendTo(path, body string, header ...string) reply {
	r.t.Helper()
	return r.do(context.Background(), http.MethodPost, path, strings.NewReader(body), header...)
}

func (r *rig) get(path string) reply {
	r.t.Helper()
	return r.do(context.Background(), http.MethodGet, path, nil)
}

func (r *rig) do(ctx context.Context, method, path string, body io.Reader, header ...string) reply {
	r.t.Helper()
	resp, err := r.open(ctx, method, path, body, header...)
	if err != nil {
		return reply{err: err}
	}
	return r.rest(resp)
}

// rest reads what is left of an answer.
func (r *rig) rest(resp *http.Response) reply {
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b), err}
}

func (r *rig) open(ctx context.Context, method, path string, body io.Reader, header ...string) (*http.Response, error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.front.URL+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header[header[i]] = append(req.Header[header[i]], header[i+1])
	}
	return r.client.Do(req)
}

// opens posts a request whose answer the test reads by itself, as soon as it must.
func (r *rig) opens(ctx context.Context, path, body string) *http.Response {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	r.t.Cleanup(cancel)
	resp, err := r.open(ctx, http.MethodPost, path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// turn sends the n-th turn of a conversation that is told faithfully, n from 1.
func (r *rig) turn(conversation string, n int, stream bool, header ...string) reply {
	r.t.Helper()
	return r.send(ask(conversation, stream, history(n)...), header...)
}

func history(n int) []string {
	texts := []string{"question 1"}
	for i := 2; i <= n; i++ {
		texts = append(texts, "Hello world", fmt.Sprintf("question %d", i))
	}
	return texts
}
