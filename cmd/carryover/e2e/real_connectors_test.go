//go:build e2e

// The suite of other connectors: scripts/vllm-cpu/e2e --connectors runs it, and it starts a pair for each of them. Every
// answer is compared with that of an engine that has no connector at all.

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// connectorCase is a pair of scripts/vllm-cpu and what must hold in front of it.
type connectorCase struct {
	pair  string
	flags func(settings map[string]string) []string
	// computes is the most that decode computes of a request's prompt of so many tokens.
	computes func(a asked, promptTokens int) int
	// apart: prefill and decode detokenise their parts of an answer for themselves, so that a character whose bytes are in
	// two tokens may come out otherwise than in one piece. The ids decide.
	apart bool
	// reads: prefill reads what decode holds of the conversation.
	reads bool
	// lags: prefill may answer before all of the prompt is where decode looks for it, and nothing says when it is. Decode computes the
	// prompt then (seen once in 268 turns, on a busy machine), so that only most of what is asked has to be found.
	lags bool
	// rare: the short form leaves the pair out.
	rare bool
}

// What LMCache's chunk_size is, in P/D mode by default, where the storage pair says it. Storage has whole chunks only.
const (
	storageChunk = 64
)

// behind is the part of a prompt that is in no whole chunk; decode computes its last token in any case.
func behind(promptTokens, chunk int) int { return promptTokens - (promptTokens-1)/chunk*chunk }

func connectorCases() []connectorCase {
	nothing := func(asked, int) int { return 0 }
	// Prefill's first token ends decode's prompt.
	first := func(asked, int) int { return 1 + blockSize }
	lmcache := func() func(map[string]string) []string {
		return func(settings map[string]string) []string {
			return []string{
				"--connector", "lmcache", "--lmcache-listen", "127.0.0.1:" + settings["LMCACHE_NOTIFY_PORT"],
				"--decoder-registry", string(encode(object{settings["DECODE_URL"]: object{
					"receiver_host": "127.0.0.1", "receiver_init_port": json.Number(settings["LMCACHE_INIT_PORT"]),
					"receiver_alloc_port": json.Number(settings["LMCACHE_ALLOC_PORT"]),
				}})),
			}
		}
	}
	return []connectorCase{
		{pair: "mooncake", computes: nothing, flags: func(settings map[string]string) []string {
			return []string{"--connector", "mooncake", "--mooncake-bootstrap-port", settings["BOOTSTRAP_PORT"]}
		}},
		{pair: "lmcache", computes: first, apart: true, flags: lmcache()},
		{pair: "lmcache-sync", rare: true, computes: first, apart: true, flags: lmcache()},
		{
			pair: "lmcache-storage", rare: true, lags: true, computes: func(_ asked, n int) int { return behind(n, storageChunk) },
			flags: func(map[string]string) []string { return []string{"--connector", "lmcache-storage"} },
		},
		{
			pair: "multi", computes: nothing, reads: true,
			flags: func(map[string]string) []string { return []string{"--connector", "multi"} },
		},
	}
}

// connectorRun is one pair, the program in front of it, and an engine of its own that says what is right.
type connectorRun struct {
	*realPair
	connectorCase
	program *watched
	lone    *engine
	report  *report
}

// TestRealConnectors holds Carryover to real engines of each connector. Both engines of a pair are killed once, at the end.
func TestRealConnectors(t *testing.T) {
	binary := buildProgram(t)
	rep := &report{began: time.Now(), duration: "bring-up of the pairs included"}
	t.Cleanup(func() { rep.write(os.Stdout) })
	lone := bringUp(t, "plain", "--prefill-only").prefill
	for _, c := range connectorCases() {
		if testing.Short() && c.rare {
			continue
		}
		t.Run(c.pair, func(t *testing.T) {
			began := time.Now()
			r := &connectorRun{realPair: bringUp(t, c.pair), connectorCase: c, lone: lone, report: rep}
			took := time.Since(began)
			r.program = watch(t, binary, r.prefill.url, r.decode.url, c.flags(r.settings)...)
			r.report.line(t, c.pair, "first turns", r.firstTurns)
			r.report.line(t, c.pair, "conversations", r.conversations)
			r.report.line(t, c.pair, "thirty at once", r.atOnce)
			r.report.line(t, c.pair, "clients that leave", r.leaving)
			if !testing.Short() {
				r.report.line(t, c.pair, "engines killed and restarted", r.killed)
			}
			t.Logf("the pair was up in %s", seconds(took))
		})
	}
}

// bringUp starts a pair, once more if that fails, and ends it with the test.
func bringUp(t *testing.T, name string, args ...string) *realPair {
	t.Helper()
	scripts := &realPair{flags: []string{"--connector", name}}
	t.Cleanup(func() {
		if err := scripts.scriptIn(context.Background(), "down"); err != nil { // the test's own context has ended
			t.Error(err)
		}
	})
	err := scripts.script(t, "up", args...)
	if err != nil {
		t.Logf("bring-up of %s is tried again: %v", name, err)
		noError(t, scripts.script(t, "down"))
		err = scripts.script(t, "up", args...)
	}
	noError(t, err)
	return findPair(t, filepath.Join(stateFolder(), "pairs", name), scripts.flags...)
}

// want asks the engine without a connector.
func (r *connectorRun) want(t *testing.T, a asked) told {
	t.Helper()
	want := ask(t, r.lone.client, r.lone.url, a.lone())
	if want.fault != "" || len(want.ids) == 0 {
		t.Fatalf("the lone request: %s", want)
	}
	return want
}

// right says whether an answer is what it must be; its text may be other than wanted where the ids are not.
func (r *connectorRun) right(got, want told) (right, sameText bool) {
	sameText = got.text == want.text
	if r.apart {
		got.text = want.text
	}
	return got.right(want), sameText
}

// most returns the most that decode computes of a prompt. Decode can't continue behind a token without a text of its own, a special one or one
// that ends inside of a character: it computes the prompt, and a rescue reads what prefill has sent.
func (r *connectorRun) most(t *testing.T, a asked, want told) int {
	t.Helper()
	if r.apart {
		first := r.want(t, a.with(object{"max_tokens": 1, "stream": false, "stream_options": nil}))
		if first.text == "" || strings.HasSuffix(first.text, "\uFFFD") {
			return want.promptTokens + 1
		}
	}
	return r.computes(a, want.promptTokens)
}

// loads is where decode had the tokens of a prompt from.
type loads struct{ computed, cached, external int }

func (l *loads) add(delta map[source]int) {
	l.computed += delta[computed]
	l.cached += delta[cached]
	l.external += delta[external]
}

func (l loads) String() string {
	return fmt.Sprintf("decode loaded %d, had %d, computed %d", l.external, l.cached, l.computed)
}

// wantMost wants most of what was asked to have been found where nothing can say that all of it is.
func (r *connectorRun) wantMost(t *testing.T, l loads) {
	t.Helper()
	if r.lags && l.computed > l.external+l.cached {
		t.Errorf("%s, want most of it loaded", l)
	}
}

// turnTally counts answers and where decode had their prompts from.
type turnTally struct {
	loads
	turns, wrong, otherText int
	slowest                 time.Duration
}

// judge holds an answer and what decode has counted for it to what they must be.
func (r *connectorRun) judge(t *testing.T, sum *turnTally, what string, a asked, got, want told, delta map[source]int) {
	t.Helper()
	right, sameText := r.right(got, want)
	sum.turns++
	sum.add(delta)
	sum.slowest = max(sum.slowest, got.took)
	if !right {
		sum.wrong++
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
	if right && !sameText {
		sum.otherText++
	}
	if most := r.most(t, a, want); delta[computed] > most && !r.lags {
		t.Errorf("%s: decode computed %d of %d prompt tokens, want at most %d", what, delta[computed], want.promptTokens, most)
	}
	t.Logf("%-44s %-6s %4d tokens: %4d loaded %4d cached %4d computed  %5.2f s (lone %5.2f)  %s", what, choose(right, "right", "WRONG"),
		want.promptTokens, delta[external], delta[cached], delta[computed], got.took.Seconds(), want.took.Seconds(), got.reuse.text)
}

// turn asks the program for a turn that must be right.
func (r *connectorRun) turn(t *testing.T, sum *turnTally, what string, a asked) told {
	t.Helper()
	want := r.want(t, a)
	before := r.decode.counted(t)
	got := r.program.ask(t, a)
	r.judge(t, sum, what, a, got, want, r.decode.since(t, before, want.promptTokens))
	return got
}

func (s turnTally) String() string {
	other := ""
	if s.otherText > 0 {
		other = fmt.Sprintf(", %d of other text with the same ids", s.otherText)
	}
	return fmt.Sprintf("%d turns, %d wrong%s, %s, slowest %s", s.turns, s.wrong, other, s.loads, seconds(s.slowest))
}
