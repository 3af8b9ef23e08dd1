package doctor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/server/record"
)

// MaxProbeTurns is how many turns each pair runs.
const MaxProbeTurns = 4

// Sizes of probes. The first answer is twice as long as the 64 tokens that prefill must lack before it reads KV (kv_recompute_threshold).
const (
	probeAnswer     = 128
	probeLastAnswer = 8
	sentenceTokens  = 8 // minimum of one sentence in a prompt
	mostSentences   = 1024
	recordLimit     = 10 * time.Second
	probeTurnLimit  = time.Minute // LMCache may wait for the whole hand-over budget, and prefill for a ticket
)

type probeTalk struct {
	base, id, model string
	stream          bool
	messages        []command.Message
	client          *http.Client
}

// newProbeTalk begins a conversation that is in no cache. It has the shape of a later turn from the start, because parity is learnt by
// shape.
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
		messages: []command.Message{
			command.NewMessage("user", text.String()), command.NewMessage("assistant", "Noted."), command.NewMessage("user", "Describe the archive in a few sentences."),
		},
		client: newProbeClient(),
	}
}

// newProbeClient uses each connection once, and ignores HTTP proxies of the environment.
func newProbeClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
}

func (t *probeTalk) body(second bool) []byte {
	fields := map[string]any{
		"model": t.model, "messages": t.messages, "conversation_id": t.id, "stream": t.stream, "temperature": 0, "max_tokens": probeLastAnswer,
	}
	if !second {
		fields["max_tokens"], fields["min_tokens"] = probeAnswer, probeAnswer
	}
	body, _ := json.Marshal(fields) // strings and numbers only
	return body
}

type probeTurn struct {
	stream, second bool
	failure        string // "" if there is a record
	record         record.Turn
	pace           command.Pace
}

func (t *probeTalk) turn(ctx context.Context, records <-chan record.Turn, second bool) probeTurn {
	if second {
		t.messages = append(t.messages, command.NewMessage("user", "Which folder is on the second shelf?"))
	}
	turn := probeTurn{stream: t.stream, second: second}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTurnLimit)
	defer cancel()
	answer, err := command.Complete(ctx, t.client, t.base+"/v1/chat/completions", t.body(second), http.Header{})
	turn.pace = answer.Pace
	t.messages = append(t.messages, command.NewMessage("assistant", answer.Text))
	ended := time.NewTimer(recordLimit)
	defer ended.Stop()
	select {
	case turn.record = <-records:
	case <-ended.C:
		turn.failure = fmt.Sprintf("no record of the turn: %v", err)
	}
	return turn
}
