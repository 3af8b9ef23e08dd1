//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// untaken is line 14: what decode refuses, and what only takes long. What it can't read is asked first of all, before the engines know each
// other.
func (s *suite) untaken(t *testing.T) {
	s.report.line(t, "14", "refused requests leave neither engine anything", s.refused)
	s.report.line(t, "14", "prompt_logprobs go to decode alone", s.promptLogprobs)
	s.report.line(t, "14", "a whole answer may take longer than a first byte", s.wholeAnswer)
}

// leaseLimit is more than the lease of a hand-over that nobody reads.
const leaseLimit = 45 * time.Second

// holdNoMore waits until neither engine holds more blocks than before, and returns how long that took.
func (s *suite) holdNoMore(t *testing.T, prefill, decode counters, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	var p, d int
	if !inTime(limit, func() bool {
		p, d = s.prefill.counted(t).pinned, s.decode.counted(t).pinned
		return p <= prefill.pinned && d <= decode.pinned
	}) {
		t.Errorf("prefill holds %d blocks and decode %d after %s, %d and %d before", p, d, limit, prefill.pinned, decode.pinned)
	}
	return time.Since(began)
}

// refused asks for more log probabilities than an engine gives, nine times at once, and for more tokens than its context holds.
func (s *suite) refused(t *testing.T) string {
	p := s.launch(t)
	prefill, decode := s.prefill.counted(t), s.decode.counted(t)
	chat := func(n int, members object) asked {
		return asked{pathChat, object{
			"model": model, "max_tokens": 8, "messages": []any{object{"role": "user", "content": fmt.Sprint(n, about)}},
		}}.with(members)
	}
	var group sync.WaitGroup
	for n := range 9 {
		group.Go(func() {
			if got := p.ask(t, chat(n, object{"logprobs": true, "top_logprobs": 50})); got.status != http.StatusBadRequest {
				t.Errorf("top_logprobs 50: got %s, want 400", got)
			}
		})
	}
	group.Wait()
	if got := p.ask(t, chat(9, object{"max_tokens": 100_000})); got.status != http.StatusBadRequest {
		t.Errorf("max_tokens 100,000: got %s, want 400", got)
	}
	return fmt.Sprintf("10 refused, both engines free %s later", seconds(s.holdNoMore(t, prefill, decode, freeLimit)))
}

// promptLogprobs asks for numbers that decode has to compute the whole prompt for.
func (s *suite) promptLogprobs(t *testing.T) string {
	p := s.launch(t)
	prefill := s.prefill.counted(t)
	if got := p.ask(t, oneShot(400).with(object{"prompt_logprobs": 1})); got.status != http.StatusOK || got.fault != "" {
		t.Errorf("got %s", got)
	}
	if now := s.prefill.counted(t); now.requests != prefill.requests {
		t.Errorf("prefill has ended %d requests, want none", now.requests-prefill.requests)
	}
	return "prefill computes nothing"
}

// wholeAnswer takes longer than the limit of a stream's first byte.
func (s *suite) wholeAnswer(t *testing.T) string {
	p := s.launch(t, "--first-byte-timeout", "500ms")
	began := time.Now()
	got := p.ask(t, oneShot(401).with(object{"max_tokens": 400, "ignore_eos": true}))
	if got.status != http.StatusOK || got.completionTokens != 400 || p.log.count("circuit") > 0 {
		t.Errorf("got %s", got)
	}
	return fmt.Sprintf("%s with a limit of 0.5 s for first bytes", seconds(time.Since(began)))
}

// sideChannelBlocked tells decode another address of prefill's side channel, at which nobody listens.
func (s *suite) sideChannelBlocked(t *testing.T) string {
	p := s.launch(t, "--kv-host", "127.0.0.77")
	prefill, decode := s.prefill.counted(t), s.decode.counted(t)
	var took []string
	for n := range 5 {
		a := oneShot(500 + n)
		began := time.Now()
		got, want := p.ask(t, a), s.alone(t, a)
		got.wantRight(t, want, "request %d", n)
		took = append(took, seconds(time.Since(began)))
	}
	if n := p.log.count("the pair is left alone"); n != 1 {
		t.Errorf("the pair was left alone %d times, want once", n)
	}
	free := s.holdNoMore(t, prefill, decode, leaseLimit)
	return fmt.Sprintf("5 requests in %v, both engines free %s later", took, seconds(free))
}
