//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
)

// paused is line 12: engines that operators pause while tickets are alive. scripts/vllm-cpu/e2e starts the engines with the endpoints
// for it (VLLM_SERVER_DEV_MODE). An engine waits with its answer to the order for all that is pinned on it, so what earlier lines have left
// has to be gone: decode's blocks live for shortTTL by now.
func (s *suite) paused(t *testing.T) {
	t.Helper()
	if !inTime(4*shortTTL, func() bool { return s.decode.counted(t).pinned == 0 }) {
		t.Errorf("decode holds %d blocks that nobody is to read", s.decode.counted(t).pinned)
		return
	}
	// Before 0.33 a paused engine lets requests wait until it goes on (v1/engine/core.py, 0.32: no refusal while paused).
	if release, _ := upstream.ReleaseOf(s.version(t)); release >= "0.33" {
		s.report.line(t, "12", "decode paused between turns", func(t *testing.T) string { return s.pausedBetweenTurns(t, s.decode) })
		s.report.line(t, "12", "prefill paused between turns", func(t *testing.T) string { return s.pausedBetweenTurns(t, s.prefill) })
	}
	s.report.line(t, "12", "decode drained, then paused", func(t *testing.T) string { return s.drained(t, "/pause", "/resume") })
	s.report.line(t, "12", "decode drained, then put to sleep", func(t *testing.T) string { return s.drained(t, "/sleep?level=0", "/wake_up") })
}

// pausedBetweenTurns pauses an engine while decode holds a ticket of a conversation. Its next turn is right, which it can be without prefill, or
// fails clearly, and leaves nothing that the engine would have to wait for; once the engine goes on, so does the conversation.
func (s *suite) pausedBetweenTurns(t *testing.T, e *engine) string {
	held := s.decode.counted(t).pinned
	w := s.watch(t, s.prefill.url, s.decode.url)
	c := dialogue{name: "paused " + e.role, prompt: chatPrompt, stream: never, salted: true, maxTokens: readable}.begin(s.prefill)
	s.tellTurn(t, w.proxyProcess, c, 1)
	if now := s.decode.counted(t).pinned; now <= held {
		t.Fatalf("decode holds %d blocks after the turn, %d before: there is no ticket", now, held)
	}
	a := c.next(t, 2)
	want := s.alone(t, a)
	pause := s.order(e, "/pause")
	if !inTime(freeLimit, func() bool { return s.isPaused(t, e) }) {
		t.Fatalf("%s is not paused", e.role)
	}
	refused, err := w.post(t, a)
	if err != nil {
		t.Fatalf("no answer after %s: %v", refused.took, err)
	}
	switch {
	case refused.right(want) && e.role == config.RolePrefill:
	case refused.status == http.StatusServiceUnavailable:
		checkClear(t, refused)
	default:
		t.Errorf("while %s is paused:\n got %s\nwant %s, or 503", e.role, refused, want)
	}
	s.ended(t, "/pause", pause)
	s.ended(t, "/resume", s.order(e, "/resume"))
	var got told
	if !inTime(startLimit, func() bool { got = w.ask(t, a); return got.fault == "" }) {
		t.Fatalf("after /resume: %s", got)
	}
	got.wantRight(t, want, "after /resume")
	c.remember(got)
	next := s.tellTurn(t, w.proxyProcess, c, 3)
	return fmt.Sprintf("status %d after %s, then %q, %q", refused.status, seconds(refused.took), got.reuse.text, next.reuse.text)
}

// drained takes a decode instance that holds tickets out of service. What they pin is given up at once, so that the order to the engine does not
// wait until they expire.
func (s *suite) drained(t *testing.T, order, undo string) string {
	held := s.decode.counted(t).pinned
	// On a busy machine the turns take longer than the default of 5 s, and the first tickets would be handed back before the drain.
	w := s.watch(t, s.prefill.url, s.decode.url, "--hand-back-after", "60s")
	const talks = 3
	for n := range talks {
		c := dialogue{name: fmt.Sprintf("drained %d", n), prompt: chatPrompt, stream: never, salted: true, maxTokens: readable}.begin(s.prefill)
		s.tellTurn(t, w.proxyProcess, c, 1)
	}
	pinned := s.decode.counted(t).pinned - held
	if pinned < talks {
		t.Fatalf("decode holds %d blocks, want those of %d tickets", pinned, talks)
	}
	_, body := askBare(t, w.client, http.MethodGet, w.operators+"/admin/instances", nil)
	name := gjson.Get(body, `instances.#(role=="decode").name`).String()
	status, body := askBare(t, w.client, http.MethodPost, w.operators+"/admin/instances/decode/"+name+"/drain", nil)
	if status != http.StatusOK {
		t.Fatalf("drain %q: status %d: %s", name, status, body)
	}
	free := s.freed(t, "after the drain", held)
	began := time.Now()
	s.ended(t, order, s.order(s.decode, order))
	took := time.Since(began)
	s.ended(t, undo, s.order(s.decode, undo))
	return fmt.Sprintf("%d blocks of %d tickets free %s after the drain, %s answered in %s", pinned, talks, seconds(free), order, seconds(took))
}

// order tells an engine something that it may take its time for.
func (s *suite) order(e *engine, path string) <-chan error {
	ended := make(chan error, 1) // one result, read once
	go func() {
		resp, err := s.client.Post(e.url+path, "application/json", nil)
		if err != nil {
			ended <- err
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
		}
		ended <- err
	}()
	return ended
}

// ended waits for an order: far shorter than tickets live.
func (s *suite) ended(t *testing.T, path string, order <-chan error) {
	t.Helper()
	select {
	case err := <-order:
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	case <-time.After(startLimit):
		t.Errorf("%s has not answered within %s: decode holds %d blocks", path, startLimit, s.decode.counted(t).pinned)
	}
}

func (s *suite) isPaused(t *testing.T, e *engine) bool {
	t.Helper()
	_, body := askBare(t, s.client, http.MethodGet, e.url+"/is_paused", nil)
	return gjson.Get(body, "is_paused").Bool()
}
