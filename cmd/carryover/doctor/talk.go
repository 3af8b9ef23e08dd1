package doctor

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
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/server/record"
)

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// MaxProbeTurns is how many turns each pair runs.
const MaxProbeTurns = 4

// Sizes of probes. Prefill reads only what it lacks, and only if that is 64 tokens or more (kv_recompute_threshold): so the first
// answer has twice as many.
const (
	probeAnswer     = 128
	probeLastAnswer = 8
	sentenceTokens  = 8 // at least, of one sentence of a prompt
	mostSentences   = 1024
	recordLimit     = 10 * time.Second
	probeTurnLimit  = time.Minute // LMCache waits for the whole hand-over budget in vain, prefill for a ticket
)

// probeTalk is one conversation on a pair.
type probeTalk struct {
	base, id, model string
	stream          bool
	messages        []chatMessage
	client          *http.Client
}

// newProbeTalk begins a conversation that no cache has the beginning of. It has the shape of a later turn from the start, because
// parity is learnt for shapes.
func newProbeTalk(cfg config.Config, base, model string, stream bool) *probeTalk {
	sentences := min(mostSentences, (app.ReuseMinTokens+leastLoad)/sentenceTokens)
	if most := cfg.LMCache.MaxPromptTokens; most > 0 {
		sentences = min(sentences, max(1, most/(4*sentenceTokens)))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Note %s.", rand.Text())
	for i := range sentences {
		fmt.Fprintf(&text, " Shelf %d of the archive holds folder %d.", i+1, 7*i%sentences+1)
	}
	return &probeTalk{
		base: base, id: "doctor-" + rand.Text(), model: model, stream: stream,
		messages: []chatMessage{
			{"user", text.String()}, {"assistant", "Noted."}, {"user", "Describe the archive in a few sentences."},
		},
		client: newProbeClient(),
	}
}

// newProbeClient returns a client that uses each connection once, and no proxy of the environment.
func newProbeClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
}

// body is the request of a turn.
func (t *probeTalk) body(second bool) []byte {
	fields := map[string]any{
		"model": t.model, "messages": t.messages, "conversation_id": t.id, "stream": t.stream, "temperature": 0, "max_tokens": probeLastAnswer,
	}
	if !second {
		fields["max_tokens"], fields["min_tokens"] = probeAnswer, probeAnswer
	}
	body, _ := json.Marshal(fields) // of strings and numbers
	return body
}

// probeTurn is one turn and its observations.
type probeTurn struct {
	stream, second bool
	failure        string // why there is no record
	record         record.Turn
	pace           pace
}

// turn runs a turn, and adds its answer to the conversation.
func (t *probeTalk) turn(ctx context.Context, records <-chan record.Turn, second bool) probeTurn {
	if second {
		t.messages = append(t.messages, chatMessage{"user", "Which folder is on the second shelf?"})
	}
	turn := probeTurn{stream: t.stream, second: second}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTurnLimit)
	defer cancel()
	answer, err := send(ctx, t.client, t.base+"/v1/chat/completions", t.body(second), http.Header{})
	turn.pace = answer.pace
	t.messages = append(t.messages, chatMessage{"assistant", answer.text})
	ended := time.NewTimer(recordLimit)
	defer ended.Stop()
	select {
	case turn.record = <-records:
	case <-ended.C:
		turn.failure = fmt.Sprintf("no record of the turn: %v", err)
	}
	return turn
}

// probeAnswered is the client's view of a turn.
type probeAnswered struct {
	status int
	header http.Header
	text   string
	pace   pace
}

// pace is the timing of a stream's events.
type pace struct {
	events int
	first  time.Duration // until the first that has text
	spread time.Duration // from there to the last
	waits  int           // how many came a millisecond or more behind the one before
}

// send sends a request for a chat or a text completion, and reads the answer to its end.
func send(ctx context.Context, client *http.Client, url string, body []byte, header http.Header) (answer probeAnswered, err error) {
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
	answer.status, answer.header = resp.StatusCode, resp.Header
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		raw, err := io.ReadAll(io.LimitReader(resp.Body, mostOfLists))
		answer.add(raw)
		return answer, err
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: ")); ok && answer.add(data) {
			at := time.Since(began)
			if answer.pace.events++; answer.pace.events == 1 {
				answer.pace.first = at
			} else if at-answer.pace.first-answer.pace.spread >= time.Millisecond {
				answer.pace.waits++
			}
			answer.pace.spread = at - answer.pace.first
		}
		if err == io.EOF {
			return answer, nil
		}
		if err != nil {
			return answer, fmt.Errorf("ask: %w", err)
		}
	}
}

// add takes in an event, or a whole answer, and reports whether it has text.
func (a *probeAnswered) add(data []byte) bool {
	var said struct {
		Choices []struct {
			Index          int
			Text           string
			Delta, Message struct{ Content string }
		}
	}
	if json.Unmarshal(data, &said) != nil || len(said.Choices) == 0 {
		return false
	}
	choice := said.Choices[0]
	text := choice.Text + choice.Delta.Content + choice.Message.Content
	if choice.Index == 0 {
		a.text += text
	}
	return text != ""
}
