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
	"slices"
	"strconv"
	"strings"
	"time"
)

// conversationDemo holds one conversation through the proxy and prints what each
// turn did.
type conversationDemo struct {
	base     string
	out      io.Writer
	records  *records
	prefills int
	engines  *deployment
	reuses   bool // the connector hands KV from decode to prefill
	saved    savings
}

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

const demoSystem = "You are the voice of a small cluster. You explain how a prefill instance computes the KV cache of a prompt, how a decode " +
	"instance continues from it token by token, and why it would be a pity to compute the same history again on every turn of a conversation."

// run holds the conversation and returns how many turns failed to show what they should: they did not go by prefill and decode, or, if the
// connector reuses KV and they were not the first, they reused nothing.
func (d *conversationDemo) run(ctx context.Context, turns int) (missed int, err error) {
	questions := []string{
		"What does decode keep when an answer is finished?", "And who may read it?", "What if my history has changed?",
		"How long is it kept?", "Which instance computes the next prompt?", "What does a miss cost?",
	}
	messages := []chatMessage{{"system", demoSystem}}
	conversation := "demo-" + rand.Text()[:8]
	if err := d.ready(ctx); err != nil {
		return 0, err
	}
	if err := d.warmUp(ctx, messages); err != nil {
		return 0, err
	}
	d.printf("A conversation over simulated vLLM instances: every turn sends the whole history.\n\n")
	show := d.showLoads
	if d.reuses {
		show = d.showReuse
	}
	d.head()
	for turn := 1; turn <= turns; turn++ {
		messages = append(messages, chatMessage{"user", questions[(turn-1)%len(questions)]})
		answer, good, err := show(ctx, turn, messages, conversation)
		if err != nil {
			return missed, err
		}
		messages = append(messages, chatMessage{"assistant", answer.text})
		if !good {
			missed++
		}
	}
	d.records.end()
	d.summary(turns - 1)
	return missed, nil
}

// ready waits until the proxy has found an answering instance of each role: some announce themselves only after their start.
func (d *conversationDemo) ready(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.base+"/readyz", nil)
		if err != nil {
			return fmt.Errorf("ready: %w", err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("ready: %w", err)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK && !bytes.Contains(body, []byte("decode_only")) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the instances are not ready: %s", body)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// warmUp sends each prefill instance one request with the shape of a later turn;
// prefill instances are picked in turn. The proxy trusts its tokenizer for that
// shape once it has agreed with the instance's rendering.
func (d *conversationDemo) warmUp(ctx context.Context, messages []chatMessage) error {
	later := append(slices.Clone(messages), chatMessage{"user", "Hello?"}, chatMessage{"assistant", "Hello."}, chatMessage{"user", "Ready?"})
	for range d.prefills {
		if _, err := d.ask(ctx, later, map[string]any{"conversation_id": "warm-up-" + rand.Text(), "max_tokens": 4}, http.Header{}); err != nil {
			return err
		}
	}
	d.records.forget()
	return nil
}

// compare asks the same with and without reuse. Prefill is picked round robin;
// alternating the order lets the prefill instance change from turn to turn.
func (d *conversationDemo) compare(ctx context.Context, messages []chatMessage, conversation string, warmFirst bool) (warm, cold chatAnswer, err error) {
	for _, isWarm := range []bool{warmFirst, !warmFirst} {
		if isWarm {
			warm, err = d.ask(ctx, messages, map[string]any{"conversation_id": conversation}, http.Header{})
		} else {
			cold, err = d.ask(ctx, messages, map[string]any{"cache_salt": rand.Text()}, http.Header{"X-Kv-Reuse": {"off"}})
		}
		if err != nil {
			return warm, cold, err
		}
	}
	return warm, cold, nil
}

// ask sends one streaming turn and reads it whole.
func (d *conversationDemo) ask(ctx context.Context, messages []chatMessage, extra map[string]any, header http.Header) (chatAnswer, error) {
	body := map[string]any{
		"model": "sim", "messages": messages, "stream": true, "temperature": 0, "max_tokens": 80,
		"stream_options": map[string]any{"include_usage": true},
	}
	for name, value := range extra {
		body[name] = value
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return chatAnswer{}, fmt.Errorf("ask: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.base+"/v1/chat/completions", bytes.NewReader(encoded))
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

// hitTokens reads tokens=… of a hit, 0 for a miss.
func hitTokens(reuse string) int { return reuseCount(reuse, "tokens=") }

// reuseCount reads a number in X-KV-Reuse, 0 if the header does not have it.
func reuseCount(reuse, member string) int {
	for part := range strings.SplitSeq(reuse, ";") {
		if value, ok := strings.CutPrefix(part, member); ok {
			n, _ := strconv.Atoi(value)
			return n
		}
	}
	return 0
}

// invite prints requests that can be sent to the demo while it serves. If the connector
// reuses KV, the second request continues the first and reuses its KV.
func (d *conversationDemo) invite(o demoOptions) {
	const said = "Carryover keeps the handle of the blocks that decode holds at the end of a turn, for less time than decode keeps the blocks, " +
		"and hands it to prefill when the next turn provably continues the same conversation. Then prefill reads what it would otherwise compute " +
		"again, and when anything about the history has changed it computes, because a wrong hand-over is worse than none."
	question := "SAY " + said
	turn := func(messages ...chatMessage) string {
		messages = append([]chatMessage{{"system", "You repeat."}}, messages...) // the shape that warmUp has shown
		body, _ := json.Marshal(map[string]any{"model": "sim", "conversation_id": "mine", "max_tokens": 200, "messages": messages})
		return string(body)
	}
	within := ""
	if d.reuses {
		within = " within " + defaultConfig().Store.TTL.String()
	}
	d.printf("\nServing on %s with %d prefill and %d decode instances. Try, one after the other%s:\n\n", d.base, o.prefills, o.decodes, within)
	for _, body := range []string{
		turn(chatMessage{"user", question}),
		turn(chatMessage{"user", question}, chatMessage{"assistant", said}, chatMessage{"user", "Thank you."}),
	} {
		d.printf("curl -si %s/v1/chat/completions -H 'Content-Type: application/json' -d '%s'\n\n", d.base, body)
	}
	d.printf("curl -s %s/health\n\nCtrl-C ends it.\n", d.base)
}

func (d *conversationDemo) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format, args...)
}
