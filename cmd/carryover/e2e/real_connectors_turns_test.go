//go:build e2e

package e2e

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
)

// withIDs is what every request of the suite asks for, because equal text is not enough.
var withIDs = object{"return_token_ids": true}

// words are so many words that no prompt before began with, so that no engine has anything of it.
func words(n int) string {
	known := strings.Fields(about)
	chosen := []string{rand.Text()}
	for range n {
		i, err := rand.Int(rand.Reader, big.NewInt(int64(len(known))))
		if err != nil {
			panic(err) // crypto/rand never fails
		}
		chosen = append(chosen, known[i.Int64()])
	}
	return strings.Join(chosen, " ")
}

// oneTurn is a request of a kind of prompt that begins as no other, without a conversation.
func oneTurn(t *testing.T, tokenizer *engine, prompt string, n int) asked {
	t.Helper()
	a := asked{"/v1/completions", object{"prompt": words(n)}}
	switch prompt {
	case chatPrompt:
		a = asked{"/v1/chat/completions", object{"messages": []map[string]string{{"role": "user", "content": words(n)}}}}
	case idsPrompt:
		a.body["prompt"] = tokenizer.tokenize(t, object{"prompt": words(n)})
	}
	return a.with(object{"model": model, "temperature": 0, "max_tokens": 16}).with(withIDs)
}

// firstTurns are one-shot requests of every shape, shorter and longer than the chunks that are transferred.
func (r *connectorRun) firstTurns(t *testing.T) string {
	sum := &turnTally{}
	for _, prompt := range []string{chatPrompt, textPrompt, idsPrompt} {
		for _, stream := range []bool{false, true} {
			for _, n := range []int{20, 400} {
				a := oneTurn(t, r.lone, prompt, n)
				if stream {
					a = a.streaming()
				}
				r.turn(t, sum, fmt.Sprintf("%s of %d words, %s", prompt, n, choose(stream, "stream", "whole")), a)
			}
		}
	}
	if sum.external == 0 {
		t.Error("decode loaded nothing")
	}
	r.wantMost(t, sum.loads)
	return sum.String()
}

// conversations are turns that continue what was said before.
func (r *connectorRun) conversations(t *testing.T) string {
	const turns = 3
	sum := &turnTally{}
	later, hits, read := 0, 0, 0
	for _, k := range []dialogue{
		{name: "a chat in streams", prompt: chatPrompt, stream: always},
		{name: "a chat in whole answers", prompt: chatPrompt, stream: never},
		{name: "a text in streams", prompt: textPrompt, stream: always},
		{name: "a text in whole answers", prompt: textPrompt, stream: never},
		{name: "a list of ids", prompt: idsPrompt, maxTokens: readable},
		{name: "an edited chat", prompt: chatPrompt, edit: changeWord},
	} {
		k.members = withIDs
		k.ask = func(name string, turn int) string { return plainQuestion(name, turn) + " " + words(60) }
		c := k.begin(r.lone)
		for n := 1; n <= turns; n++ {
			before := r.prefill.counted(t)
			a := c.next(t, n)
			got := r.turn(t, sum, fmt.Sprintf("%s, turn %d", k.name, n), a)
			if got.fault != "" {
				break // there is nothing to go on from
			}
			c.remember(got)
			if n == 1 {
				continue
			}
			later++
			if got.reuse.hit {
				hits++
			}
			read += r.prefill.since(t, before, 0)[external]
		}
	}
	if r.reads && (hits == 0 || read == 0) {
		t.Errorf("later turns: %d hits, prefill read %d tokens from decode, want some", hits, read)
	}
	r.wantMost(t, sum.loads)
	if !r.reads {
		return sum.String()
	}
	return fmt.Sprintf("%s; hits %s, prefill read %d tokens", sum, share(hits, later), read)
}

// atOnce is thirty turns of every shape at the same time.
func (r *connectorRun) atOnce(t *testing.T) string {
	const turns = 30
	sum := &turnTally{}
	var requests []asked
	var wants []told
	tokens := 0
	for n := range turns {
		a := oneTurn(t, r.lone, []string{chatPrompt, textPrompt, idsPrompt}[n%3], 20+10*n)
		if n%2 == 0 {
			a = a.streaming()
		}
		want := r.want(t, a)
		tokens += want.promptTokens
		requests, wants = append(requests, a), append(wants, want)
	}
	before := r.decode.counted(t)
	answers := make([]told, turns)
	failures := make([]error, turns)
	var all sync.WaitGroup
	for n := range turns {
		all.Go(func() { answers[n], failures[n] = r.program.post(t, requests[n]) })
	}
	all.Wait()
	delta := r.decode.since(t, before, tokens)
	sum.add(delta)
	most := 0
	for n, got := range answers {
		if failures[n] != nil {
			t.Errorf("request %d: %v", n, failures[n])
		}
		r.judge(t, sum, fmt.Sprintf("request %d", n), requests[n], got, wants[n], nil)
		most += r.most(t, requests[n], wants[n])
	}
	r.wantMost(t, sum.loads)
	if delta[computed] > most && !r.lags {
		t.Errorf("decode computed %d of %d prompt tokens, want at most %d", delta[computed], tokens, most)
	}
	return sum.String()
}
