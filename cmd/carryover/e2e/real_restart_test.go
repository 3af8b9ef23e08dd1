//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
)

const (
	// releaseBacklog is how many requests' blocks may wait for a prefill leg that releases them.
	releaseBacklog = 8
	// releaseCost is how much longer a request may take because it carries a release. A busy machine alone can cost a second.
	releaseCost = 4 * time.Second
	// errorLimit is how long a turn may take to fail when an engine has gone.
	errorLimit = 30 * time.Second
	// shortTTL is decoder_kv_blocks_ttl of the decode instance after its restart.
	shortTTL = 20 * time.Second
)

// oneShot is a request without a conversation. Each begins differently, so that no two share a block.
func oneShot(n int) asked {
	return asked{"/v1/completions", object{
		"model": model, "temperature": 0, "max_tokens": 16,
		"prompt": fmt.Sprintf("%d. Request number %d of a test. %s", n, n, about),
	}}
}

// oneShots is the first half of line 4. Every second request is a stream.
func (s *suite) oneShots(t *testing.T) string {
	t.Helper()
	const requests = 20
	p := s.launch(t)
	before := s.decode.counted(t).pinned
	var each, most int // blocks: of the largest request, and held at once
	for n := range requests {
		a := oneShot(n)
		if n%2 == 0 {
			a = a.streaming()
		}
		got := p.ask(t, a)
		held := s.decode.counted(t).pinned - before
		if want := s.alone(t, a); !got.right(want) {
			t.Errorf("request %d:\n got %s\nwant %s", n, got, want)
		}
		each = max(each, (got.promptTokens+got.completionTokens-2)/blockSize+1) // the last token sampled is not cached
		most = max(most, held)
		if held > releaseBacklog*each {
			t.Errorf("after request %d: decode holds %d blocks, want at most %d for each of %d requests", n, held, each, releaseBacklog)
		}
	}
	held := 0
	released := inTime(10*time.Second, func() bool {
		held = s.decode.counted(t).pinned - before
		return held <= each
	})
	if !released {
		t.Errorf("10 s after the last request: decode holds %d blocks, want at most %d", held, each)
	}
	if most == 0 {
		t.Error("decode never held a block: nothing was measured")
	}
	return fmt.Sprintf("%d requests of %d blocks, at most %d blocks held, %d at the end", requests, each, most, held)
}

// legs runs a one-shot request on the engines directly, as the program does, its prefill leg with the release of an
// earlier ticket if there is one. It returns the answer, decode's ticket and the time of both legs.
func (s *suite) legs(t *testing.T, a asked, release object) (answer told, ticket object, took time.Duration) {
	t.Helper()
	began := time.Now()
	handOver := s.prefillLeg(t, a, release)
	handOver["do_remote_prefill"], handOver["do_remote_decode"] = true, false
	answer, ticket = s.leg(t, s.decode, a.with(object{"kv_transfer_params": handOver}))
	answer.params = nil
	return answer, ticket, time.Since(began)
}

func (s *suite) prefillLeg(t *testing.T, a asked, release object) object {
	t.Helper()
	params := firstParams()
	maps.Copy(params, release)
	if release != nil {
		params["remote_num_tokens"] = 0
	}
	params["do_remote_decode"], params["do_remote_prefill"] = true, false
	_, handOver := s.leg(t, s.prefill, a.with(object{"max_tokens": 1, "kv_transfer_params": params}))
	return handOver
}

// leg asks an engine for an answer with params.
func (s *suite) leg(t *testing.T, e *engine, a asked) (told, object) {
	t.Helper()
	answer := ask(t, s.client, e.url, a)
	var params object
	if err := json.Unmarshal(answer.params, &params); err != nil {
		t.Fatalf("params of %s: %v; %s", e.role, err, answer)
	}
	return answer, params
}

// restart is a decode instance that is killed and started again while a program runs.
type restart struct {
	*suite
	program *proxyProcess
	told    *telling // a conversation that goes on after it
	tickets []object // of the engine that is killed
	took    time.Duration
}

// decodeRestarts is line 5 for decode, and line 4 for releases to a decode that has gone.
func (s *suite) decodeRestarts(t *testing.T) {
	t.Helper()
	t.Run("decode restarted", func(t *testing.T) {
		r := &restart{suite: s, program: s.launch(t)}
		r.told = dialogue{name: "a survivor", prompt: chatPrompt, stream: never, salted: true}.begin(s.prefill)
		s.tellTurn(t, r.program, r.told, 1)
		s.tellTurn(t, r.program, r.told, 2)
		for n := range 2 {
			_, ticket, _ := s.legs(t, oneShot(100+n), nil)
			r.tickets = append(r.tickets, ticket)
		}
		s.kill(t, config.RoleDecode)
		s.report.line(t, "4", "release to a decode that was killed", r.releaseToNobody)
		s.report.line(t, "5", "a turn without decode fails clearly", r.fails)
		r.took = s.start(t, config.RoleDecode, "--kv-transfer-config", shortLived())
		s.report.line(t, "4", "release to a decode that was restarted", r.releaseToStranger)
		s.report.line(t, "5", "decode killed and restarted between turns", r.goesOn)
	})
}

// goesOn continues the conversation whose ticket went with the engine.
func (r *restart) goesOn(t *testing.T) string {
	t.Helper()
	next := r.tellTurn(t, r.program, r.told, 3)
	if next.took > errorLimit {
		t.Errorf("the next turn took %s, want at most %s", next.took, errorLimit)
	}
	second := r.tellTurn(t, r.program, r.told, 4)
	// The ticket of a turn that was answered before the program has noticed the new process counts as one of the old process.
	if second.reuse.reason == "instance_gone" {
		second = r.tellTurn(t, r.program, r.told, 5)
	}
	if !second.reuse.hit {
		t.Errorf("a turn after those for which decode's old process was gone: got %q, want a hit", second.reuse.text)
	}
	return fmt.Sprintf("decode up in %s, next turn %q in %s, then %q",
		seconds(r.took), next.reuse.text, seconds(next.took), second.reuse.text)
}

// fails asks for a turn that cannot be right; the error must say so, soon.
func (r *restart) fails(t *testing.T) string {
	t.Helper()
	got, err := r.program.post(t, oneShot(110))
	if err != nil {
		t.Fatalf("no answer after %s: %v", got.took, err)
	}
	checkClear(t, got)
	return fmt.Sprintf("status %d after %s", got.status, seconds(got.took))
}

// shortLived is the --kv-transfer-config of scripts/vllm-cpu/up with a short time to live.
func shortLived() string {
	return fmt.Sprintf(`{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_connector_extra_config":`+
		`{"bidirectional_kv_xfer":true,"num_threads":0,"decoder_kv_blocks_ttl":%d}}`, int(shortTTL.Seconds()))
}

// tellTurn is one turn of a dialogue that must be right.
func (s *suite) tellTurn(t *testing.T, p *proxyProcess, c *telling, turn int) told {
	t.Helper()
	a := c.next(t, turn)
	got := p.ask(t, a)
	if want := s.alone(t, a); !got.right(want) {
		t.Fatalf("%s, turn %d (%s):\n got %s\nwant %s", c.name, turn, got.reuse.text, got, want)
	}
	c.remember(got)
	return got
}

// releaseToNobody sends a prefill leg with the release of blocks whose owner has gone.
func (r *restart) releaseToNobody(t *testing.T) string {
	t.Helper()
	var usual []time.Duration
	for n := range 3 {
		began := time.Now()
		r.prefillLeg(t, oneShot(120+n), nil)
		usual = append(usual, time.Since(began))
	}
	a := oneShot(130)
	want := r.alone(t, a.with(object{"max_tokens": 1}))
	began := time.Now()
	handOver := r.prefillLeg(t, a, r.tickets[0])
	took := time.Since(began)
	if tokens := handOver["remote_num_tokens"]; tokens != float64(want.promptTokens) {
		t.Errorf("hand-over of the carrying leg: got %v tokens, want %d", tokens, want.promptTokens)
	}
	return checkCost(t, took, usual)
}

// releaseToStranger sends whole turns, one with the release of blocks of the engine that was there before.
func (r *restart) releaseToStranger(t *testing.T) string {
	t.Helper()
	var usual []time.Duration
	for n := range 4 {
		_, _, took := r.legs(t, oneShot(140+n), nil)
		if n > 0 { // the first includes the handshake with the new engine
			usual = append(usual, took)
		}
	}
	a := oneShot(150)
	want := r.alone(t, a)
	got, _, took := r.legs(t, a, r.tickets[1])
	got.wantRight(t, want, "the carrying request")
	return checkCost(t, took, usual)
}

func checkCost(t *testing.T, took time.Duration, usual []time.Duration) string {
	t.Helper()
	slowest := slices.Max(usual) // because of what else the machine does
	if took > slowest+releaseCost {
		t.Errorf("the request with the release took %s, others up to %s, want at most %s more", took, slowest, releaseCost)
	}
	return fmt.Sprintf("%s with the release, %s to %s without", seconds(took), seconds(slices.Min(usual)), seconds(slowest))
}

// releaseExpired lets decode give the blocks up by itself before their release arrives. The program would release them
// within seconds, so it is stopped meanwhile, as a process of a machine that sleeps is.
func (s *suite) releaseExpired(t *testing.T) string {
	t.Helper()
	prefill := recordEngine(t, config.RolePrefill, s.prefill.url)
	p := launch(t, s.binary, prefill.url, s.decode.url)
	var usual []time.Duration
	for n := range 4 {
		usual = append(usual, p.ask(t, oneShot(160+n)).took)
	}
	p.signal(t, syscall.SIGSTOP)
	defer p.signal(t, syscall.SIGCONT) // also where the test ends early
	seen := len(prefill.seen())
	expired := inTime(2*shortTTL, func() bool { return s.decode.counted(t).pinned == 0 })
	if !expired {
		t.Fatalf("decode holds %d blocks %s after the last request", s.decode.counted(t).pinned, 2*shortTTL)
	}
	a := oneShot(170)
	want := s.alone(t, a)
	p.signal(t, syscall.SIGCONT)
	got := p.ask(t, a)
	got.wantRight(t, want, "the carrying request")
	legs := prefill.seen()[seen:]
	if !slices.ContainsFunc(legs, func(x exchange) bool { return strings.Contains(kindOf(x), release) }) {
		t.Errorf("none of %d prefill legs carried the release of blocks that had expired", len(legs))
	}
	return checkCost(t, got.took, usual[1:]) // the first includes what the program asks of engines that it does not know
}

// checkClear holds a failed turn to what a client can understand: an OpenAI error as the body or as the last event.
func checkClear(t *testing.T, got told) {
	t.Helper()
	message := gjson.Get(got.fault, "error.message").String()
	if got.status == http.StatusOK {
		message = gjson.Get(got.fault, "message").String()
	}
	if message == "" || got.status != http.StatusOK && got.status < 500 {
		t.Errorf("a turn without an engine: got status %d, %q, want an error with a message", got.status, got.fault)
	}
	if got.took > errorLimit {
		t.Errorf("a turn without an engine took %s, want at most %s", got.took, errorLimit)
	}
}

// killUnder kills prefill while a turn's leg is there. Prefill is stopped before the turn begins, so the leg can't end first. The turn must be
// answered, or fail clearly, in time.
func (p *realPair) killUnder(t *testing.T, program *watched, a asked) told {
	t.Helper()
	p.signal(t, config.RolePrefill, syscall.SIGSTOP)
	var got told
	ended := make(chan error, 1) // one result, read once
	go func() {
		var err error
		got, err = program.post(t, a)
		ended <- err
	}()
	inFlight := inTime(errorLimit, func() bool {
		_, body := askBare(t, program.client, http.MethodGet, program.operators+"/admin/instances", nil)
		return gjson.Get(body, `instances.#(role=="prefill").in_flight`).Int() > 0
	})
	p.kill(t, config.RolePrefill)
	killed := time.Now()
	err := <-ended
	if !inFlight {
		t.Fatalf("prefill got no leg of a turn that ended with %s (%v)", got, err)
	}
	if err != nil {
		t.Errorf("prefill killed: no answer: %v", err)
	} else if got.fault != "" {
		checkClear(t, got)
	}
	if took := time.Since(killed); took > errorLimit {
		t.Errorf("prefill killed: the turn took %s more, want at most %s", took, errorLimit)
	}
	return got
}

// prefillKilled is line 5 for prefill, which is not started again here.
func (s *suite) prefillKilled(t *testing.T) string {
	t.Helper()
	w := s.watch(t, s.prefill.url, s.decode.url)
	long := make([]int, 3000)
	for i := range long {
		long[i] = 10 + i*7919%1900
	}
	a := asked{"/v1/completions", object{"model": model, "temperature": 0, "max_tokens": 16, "prompt": long}}
	want := s.alone(t, a)
	got := s.killUnder(t, w, a)
	t.Logf("the program's last lines:\n%s", w.log.tail(3))
	if got.fault == "" {
		got.wantRight(t, want, "the turn that lost its prefill")
	}
	return fmt.Sprintf("status %d, %s, after %s (lone %s)", got.status, choose(got.fault == "", "right", "clear error"), seconds(got.took), seconds(want.took))
}
