//go:build e2e

// The suite of a real vLLM pair: scripts/vllm-cpu/e2e starts the pair and runs it. Every answer is compared with that of
// a lone request, which no transfer and no cache can have touched.

package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// suite is the pair, the program, and what was found.
type suite struct {
	*realPair
	binary string
	report *report
	// Of the main run.
	outcomes []turnOutcome
	seen     []exchange
	// Of the conversations that are handed back.
	handedBack []exchange
}

// TestRealPair holds Carryover to two real engines. The order matters: vLLM keeps the handshake of engines that have met, release is measured
// on engines that hold nothing yet, each engine is restarted once, and the run that reads wrong blocks on purpose is the last thing that they
// do.
func TestRealPair(t *testing.T) {
	s := &suite{
		realPair: newPair(t), binary: buildProgram(t),
		report: &report{began: time.Now(), duration: "bring-up of the pair not included"},
	}
	t.Cleanup(func() { s.report.write(os.Stdout) })
	if !t.Run("the program starts", func(t *testing.T) { launch(t, s.binary, s.prefill.url, s.decode.url) }) {
		return
	}

	if !testing.Short() {
		s.report.line(t, "14", "decode that can't reach prefill's side channel answers alone", s.sideChannelBlocked)
	}
	s.report.line(t, "0", "what this version gives", s.gives)
	s.report.line(t, "4", "release of one-shot requests", s.oneShots)
	s.report.line(t, "4", "a release that is dropped leaves prefill nothing", s.droppedRelease)
	s.mainRun(t)
	if testing.Short() {
		return
	}
	s.report.line(t, "6", "the simulator answers in the same shapes", s.sameShapes)
	s.report.line(t, "7", "idle for 7 s between turns", s.idle)
	s.report.line(t, "8", "replicas share tickets through Redis", s.replicas)
	s.operators(t)
	s.handBack(t)
	s.agents(t)
	s.untaken(t)
	if !strings.HasPrefix(s.version(t), "0.32") { // how a conversation is found does not depend on the version, and this takes minutes
		s.report.line(t, "13", "16 conversations without ids reuse what they reuse with ids", s.unnamed)
	}
	s.decodeRestarts(t)
	s.report.line(t, "4", "release to a decode that let its blocks expire", s.releaseExpired)
	s.paused(t)
	s.report.line(t, "5", "prefill killed during a turn", s.prefillKilled)
	s.report.line(t, "2", "prefill without a prefix cache reads what was offered", s.exactAccounting)
	s.report.line(t, "3", "the program without the proof is wrong", s.unproven)
}

// turnOutcome is what became of one turn of a dialogue.
type turnOutcome struct {
	dialogue
	turn       int
	asked      asked
	want, got  told
	fromSource map[source]int // prefill's prompt tokens
}

func (o turnOutcome) String() string { return fmt.Sprintf("%s, turn %d", o.name, o.turn) }

// tell runs a dialogue through the program, or through several in turn, each turn after a lone request that it must equal.
func (s *suite) tell(t *testing.T, k dialogue, programs ...*proxyProcess) []turnOutcome {
	t.Helper()
	var outcomes []turnOutcome
	c := k.begin(s.prefill)
	for turn := 1; turn <= turnsPerDialogue; turn++ {
		o := turnOutcome{dialogue: k, turn: turn, asked: c.next(t, turn)}
		p := programs[turn%len(programs)]
		o.want = ask(t, s.client, s.prefill.url, o.asked.lone())
		if o.want.fault != "" {
			t.Fatalf("%s: the lone request: %s", o, o.want)
		}
		before := s.prefill.counted(t)
		o.got = ask(t, p.client, p.base, o.asked)
		o.fromSource = s.prefill.since(t, before, o.want.promptTokens)
		outcomes = append(outcomes, o)
		t.Logf("%-24s %-32s %4d tokens  %4d local %4d external  %5.2f s (lone %5.2f)  %s", o, choose(o.got.right(o.want), "right", "WRONG"),
			o.want.promptTokens, o.fromSource[cached], o.fromSource[external], o.got.took.Seconds(), o.want.took.Seconds(), o.got.reuse.text)
		if o.got.fault != "" {
			break // there is nothing to go on from
		}
		c.remember(o.got)
	}
	return outcomes
}

// programs are the two that tell the dialogues, by nameless: turns without an id are found by their content.
func (s *suite) programs(t *testing.T, prefill, decode *recorder) map[bool]*proxyProcess {
	t.Helper()
	return map[bool]*proxyProcess{
		false: launch(t, s.binary, prefill.url, decode.url),
		true:  launch(t, s.binary, prefill.url, decode.url, "--conversation-by-content", "on"),
	}
}

// mainRun is lines 1 to 3: all conversations, with the engines' own prefix caches on.
func (s *suite) mainRun(t *testing.T) {
	t.Helper()
	t.Run("conversations", func(t *testing.T) {
		prefill, decode := recordEngine(t, config.RolePrefill, s.prefill.url), recordEngine(t, config.RoleDecode, s.decode.url)
		programs := s.programs(t, prefill, decode)
		for _, k := range dialogues() {
			s.outcomes = append(s.outcomes, s.tell(t, k, programs[k.nameless])...)
		}
		s.seen = append(prefill.seen(), decode.seen()...)
	})
	s.report.line(t, "1", "answers equal those of lone requests", s.checkAnswers)
	s.report.line(t, "2", "hits are real", s.checkHits)
	s.report.line(t, "3", "nothing is poisoned", s.checkCaches)
}

// simulated starts a simulated engine like those of the pair, and records what it is asked.
func (s *suite) simulated(t *testing.T, role string) *recorder {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Version = s.version(t)
	cfg.Role, cfg.Model, cfg.BlockSize, cfg.Sampling = role, model, blockSize, vllmsim.SamplingNoncanonical
	cfg.PromptTokensDetails, cfg.RequestIDHeaders, cfg.OutputTokenIDs = true, true, true
	return recordEngine(t, role, testrig.StartInstance(t, cfg, "").URL())
}

// sameShapes is line 6: the same conversations in front of simulated engines.
func (s *suite) sameShapes(t *testing.T) string {
	t.Helper()
	prefill, decode := s.simulated(t, config.RolePrefill), s.simulated(t, config.RoleDecode)
	programs := s.programs(t, prefill, decode)
	tokenizer := &engine{role: config.RolePrefill, url: prefill.engine, client: s.client}
	for _, k := range dialogues() {
		c := k.begin(tokenizer)
		for turn := 1; turn <= turnsPerDialogue; turn++ {
			p := programs[k.nameless]
			got := ask(t, p.client, p.base, c.next(t, turn))
			if got.fault != "" {
				t.Fatalf("%s, turn %d, simulated: %s", k.name, turn, got)
			}
			c.remember(got)
		}
	}
	engines, simulated := answerShapesOf(s.seen), answerShapesOf(prefill.seen(), decode.seen())
	if len(engines) == 0 {
		t.Error("no exchange was recorded")
	}
	unlike := differences(engines, simulated)
	if len(unlike) > 0 {
		t.Errorf("differences:\n  %s", strings.Join(unlike, "\n  "))
	}
	return fmt.Sprintf("%d exchanges of %d kinds, %d differences", len(s.seen), len(engines), len(unlike))
}

// idle is line 7: the engines close connections that were idle for 5 s.
func (s *suite) idle(t *testing.T) string {
	t.Helper()
	p := launch(t, s.binary, s.prefill.url, s.decode.url)
	c := dialogue{name: "a slow reader", prompt: chatPrompt, salted: true}.begin(s.prefill)
	for turn := 1; turn <= 3; turn++ {
		if turn > 1 {
			<-time.After(7 * time.Second)
		}
		a := c.next(t, turn)
		got := ask(t, p.client, p.base, a)
		if want := ask(t, s.client, s.prefill.url, a.lone()); !got.right(want) {
			t.Errorf("turn %d:\n got %s\nwant %s", turn, got, want)
		}
		c.remember(got)
	}
	retries := p.log.count(`"retries":`) - p.log.count(`"retries":0`)
	if retries != 0 {
		t.Errorf("turns that were tried again: got %d, want 0", retries)
	}
	return fmt.Sprintf("3 turns, %d retries", retries)
}

// replicas is line 8: every turn goes to the other one of two programs, whose tickets are in a real Redis.
func (s *suite) replicas(t *testing.T) string {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	noError(t, os.WriteFile(secret, []byte(rand.Text()), 0o600))
	flags := []string{"--secret-file", secret, "--redis-url", "redis://" + redistest.Start(t).Addr()}
	one, other := launch(t, s.binary, s.prefill.url, s.decode.url, flags...), launch(t, s.binary, s.prefill.url, s.decode.url, flags...)
	later, hits, wrong := 0, 0, 0
	for _, k := range dialogues() {
		if k.prompt != chatPrompt || !k.faithful {
			continue
		}
		for _, o := range s.tell(t, k, one, other) {
			if o.turn > 1 {
				later++
			}
			if o.got.reuse.hit {
				hits++
			}
			if !o.got.right(o.want) {
				wrong++
				t.Errorf("%s (%s):\n got %s\nwant %s", o, o.got.reuse.text, o.got, o.want)
			}
		}
	}
	if 100*hits < sharedHits*later {
		t.Errorf("hits of later turns: got %s, want at least %d %%", share(hits, later), sharedHits)
	}
	return fmt.Sprintf("hits %s of later turns, %d wrong", share(hits, later), wrong)
}

// exactAccounting is the second half of line 2: prefill has no cache of its own, so what it did not compute it has read
// from decode.
func (s *suite) exactAccounting(t *testing.T) string {
	t.Helper()
	restart := s.start(t, config.RolePrefill, "--no-enable-prefix-caching")
	p := launch(t, s.binary, s.prefill.url, s.decode.url)
	hits, tokens, read := 0, 0, 0
	for _, k := range dialogues() {
		switch k.name {
		default:
			continue
		case "the first echo", "the third echo", "the listed echo", "the full block", "a changed word", "asked again":
		}
		for _, o := range s.tell(t, k, p) {
			if !o.got.right(o.want) {
				t.Errorf("%s (%s):\n got %s\nwant %s", o, o.got.reuse.text, o.got, o.want)
			}
			if o.got.reuse.hit {
				hits++
			}
			tokens, read = tokens+o.got.reuse.tokens, read+o.fromSource[external]
			if from := o.fromSource[external]; !near(from, o.got.reuse.tokens) || !o.got.reuse.hit && from != 0 {
				t.Errorf("%s (%s): prefill read %d tokens from decode", o, o.got.reuse.text, from)
			}
		}
	}
	if hits < 10 {
		t.Errorf("hits: got %d, want at least 10 of 18 later turns", hits)
	}
	return fmt.Sprintf("%d hits, %d tokens offered, %d read; prefill up in %s", hits, tokens, read, seconds(restart))
}

// wrongWithoutProof is how many wrong answers show that the suite would see some.
const wrongWithoutProof = 5

// unproven is the second half of line 3: a program that offers whole tickets. The engines are
// not used after it.
func (s *suite) unproven(t *testing.T) string {
	t.Helper()
	t.Setenv(unprovenVariable, "1")
	p := launch(t, os.Args[0], s.prefill.url, s.decode.url)
	wrong, later := 0, 0
	for _, k := range dialogues() {
		if wrong > wrongWithoutProof || !k.faithful || k.prompt == idsPrompt {
			continue
		}
		for _, o := range s.tell(t, k, p) {
			if o.turn > 1 {
				later++
			}
			if o.got.fault == "" && !o.got.right(o.want) {
				wrong++
			}
		}
	}
	if wrong < wrongWithoutProof {
		t.Errorf("wrong answers without the proof: got %d of %d later turns, want at least %d", wrong, later, wrongWithoutProof)
	}
	return fmt.Sprintf("%d wrong of %d later turns", wrong, later)
}
