//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
)

const (
	// backLimit is how long after a hand-back the engines may hold blocks for it. Prefill would keep its own for 30 s if the leg's
	// first token were its last, and decode keeps those that nobody reads for 480 s.
	backLimit = 4 * time.Second
	// readByLeg is a length of answers that a hand-back reads from decode whatever prefill has of the prompt: see readable.
	readByLeg = 68
)

// handBack is line 10: what decode holds after a turn goes to prefill's own prefix cache.
func (s *suite) handBack(t *testing.T) {
	t.Helper()
	s.report.line(t, "10", "decode's KV is back soon after a hand-back", s.handBackFrees)
	s.report.line(t, "10", "next turns find in prefill what was handed back", s.handedBackHits)
	s.report.line(t, "10", "18 conversations without ids reuse what their tokens allow", s.strangers)
	s.report.line(t, "10", "the simulator answers hand-backs in the same shape", s.sameHandBackShape)
}

// handBackFrees takes the time from the end of each hand-back, as the program logs it, until both engines hold what they did before
// the turn.
func (s *suite) handBackFrees(t *testing.T) string {
	const turns = 3
	var numbers []string
	for _, mode := range []struct {
		name  string
		waits bool // decode holds the blocks for a while
		flags []string
	}{
		{"now", false, []string{"--hand-back", "now"}},
		{"idle for 4 s", true, []string{"--hand-back", "idle", "--hand-back-after", "4s"}},
	} {
		p := s.launch(t, mode.flags...)
		c := dialogue{name: "handed back " + mode.name, prompt: idsPrompt, faithful: true, maxTokens: readByLeg, salted: true}.begin(s.prefill)
		var worst time.Duration
		most, read := 0, s.prefill.counted(t).prompt[external]
		for turn := 1; turn <= turns; turn++ {
			a := c.next(t, turn)
			want := s.alone(t, a)
			held, prefillHeld := s.decode.counted(t).pinned, s.prefill.counted(t).pinned
			got := p.ask(t, a)
			if !got.right(want) {
				t.Fatalf("%s, turn %d (%s):\n got %s\nwant %s", c.name, turn, got.reuse.text, got, want)
			}
			c.remember(got)
			if mode.waits {
				blocks := 0
				if !inTime(3*time.Second, func() bool { blocks = s.decode.counted(t).pinned - held; return blocks > 0 }) {
					t.Errorf("%s, turn %d: decode holds nothing for the next turn", c.name, turn)
				}
				most = max(most, blocks)
			}
			ended := p.awaitHandBacks(t, turn)[turn-1].Get("time").Time()
			var decode, prefill int
			inTime(freeLimit, func() bool {
				decode, prefill = s.decode.counted(t).pinned-held, s.prefill.counted(t).pinned-prefillHeld
				return decode <= 0 && prefill <= 0
			})
			took := time.Since(ended)
			if took > backLimit {
				t.Errorf("%s, turn %d: %s after the hand-back decode holds %d blocks more than before, prefill %d; want none after %s",
					c.name, turn, took, decode, prefill, backLimit)
			}
			worst = max(worst, took)
		}
		if read = s.prefill.counted(t).prompt[external] - read; read < turns*blockSize {
			t.Errorf("%s: prefill read %d tokens from decode, want at least %d", c.name, read, turns*blockSize)
		}
		text := fmt.Sprintf("%s: back after at most %.2f s, %d tokens read", mode.name, worst.Seconds(), read)
		if mode.waits {
			text += fmt.Sprintf(", %d blocks held before", most)
		}
		numbers = append(numbers, text)
	}
	return strings.Join(numbers, "; ")
}

// handBacks are the ends of hand-backs that the program has logged.
func (l *programLog) handBacks() (ends []gjson.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if record := gjson.Parse(line); record.Get("msg").String() == "hand-back" {
			ends = append(ends, record)
		}
	}
	return ends
}

// awaitHandBacks returns the hand-backs of a program once there are n, none of which may have failed.
func (p *proxyProcess) awaitHandBacks(t *testing.T, n int) (ends []gjson.Result) {
	t.Helper()
	if !inTime(freeLimit, func() bool { ends = p.log.handBacks(); return len(ends) >= n }) {
		t.Fatalf("the program has ended %d hand-backs after %s, want %d", len(ends), freeLimit, n)
	}
	p.wantHandBacksDone(t)
	return ends
}

// wantHandBacksDone reports hand-backs that have ended otherwise.
func (p *proxyProcess) wantHandBacksDone(t *testing.T) {
	t.Helper()
	for _, end := range p.log.handBacks() {
		if end.Get("outcome").String() != "done" {
			t.Errorf("a hand-back has failed: %s", end.Raw)
		}
	}
}

// handedBackHits has conversations pause until all of them are handed back.
func (s *suite) handedBackHits(t *testing.T) string {
	prefill := recordEngine(t, config.RolePrefill, s.prefill.url)
	p := launch(t, s.binary, prefill.url, s.decode.url, "--hand-back", "idle", "--hand-back-after", "200ms")
	var tellings []*telling
	for _, k := range dialogues() {
		switch k.name {
		case "the first echo", "the third echo", "the listed echo", "a long answer", "a changed word":
			tellings = append(tellings, k.begin(s.prefill))
		}
	}
	var outcomes []turnOutcome
	later, hits, wrong, tokens := map[bool]int{}, map[bool]int{}, 0, 0 // the first two by faithful
	misses := map[string]int{}
	for turn := 1; turn <= turnsPerDialogue; turn++ {
		held := s.decode.counted(t).pinned
		requests, lone := make([]asked, len(tellings)), make([]asked, len(tellings))
		for i, c := range tellings {
			requests[i] = c.next(t, turn)
			lone[i] = requests[i].lone()
		}
		wants := askTogether(t, s.client, s.prefill.url, lone)
		answers := askTogether(t, p.client, p.base, requests)
		for i, c := range tellings {
			o := turnOutcome{dialogue: c.dialogue, turn: turn, asked: requests[i], want: wants[i], got: answers[i]}
			if !o.got.right(o.want) {
				wrong++
				t.Errorf("%s (%s):\n got %s\nwant %s", o, o.got.reuse.text, o.got, o.want)
			}
			c.remember(o.got)
			outcomes = append(outcomes, o)
			r := o.got.reuse
			t.Logf("%-24s %s", o, r.text)
			switch {
			case turn == 1:
				continue
			case !r.hit:
				misses[r.reason]++
			case r.proof != "engine" || r.tokens <= 0 || r.tokens > o.got.cached:
				t.Errorf("%s: got %q and %d tokens from prefill's cache, want a hit of so many at most by the proof engine", o, r.text, o.got.cached)
			default:
				hits[o.faithful]++
				tokens += r.tokens
			}
			later[o.faithful]++
		}
		s.freed(t, fmt.Sprintf("after turn %d", turn), held)
	}
	p.wantHandBacksDone(t)
	if 100*hits[true] < faithfulHits*later[true] {
		t.Errorf("hits of faithful later turns: got %s, want at least %d %%", share(hits[true], later[true]), faithfulHits)
	}
	if sent := ticketsIn(prefill.seen()); sent != 0 {
		t.Errorf("%d turns have sent a ticket after it was handed back", sent)
	}
	return fmt.Sprintf("faithful %s, edited %s, %d tokens, misses %v, %d wrong, %d hand-backs; %s", share(hits[true], later[true]),
		share(hits[false], later[false]), tokens, misses, wrong, len(p.log.handBacks()), s.askPlainly(t, outcomes))
}

// isHandBack says whether an exchange is a hand-back leg.
func isHandBack(x exchange) bool {
	return x.role == config.RolePrefill && namesBlocks(x) && gjson.GetBytes(x.request, "stream").Bool()
}

func namesBlocks(x exchange) bool {
	return gjson.GetBytes(x.request, "kv_transfer_params.remote_block_ids").IsArray()
}

// ticketsIn counts the legs of turns that offer prefill a ticket.
func ticketsIn(exchanges []exchange) (n int) {
	for _, x := range exchanges {
		if x.role == config.RolePrefill && namesBlocks(x) && !isHandBack(x) && gjson.GetBytes(x.request, "kv_transfer_params.remote_num_tokens").Int() > 0 {
			n++
		}
	}
	return n
}

// sameHandBackShape compares the first chunks of hand-back legs, which is all that the program reads of them.
func (s *suite) sameHandBackShape(t *testing.T) string {
	prefill, decode := s.simulated(t, config.RolePrefill), s.simulated(t, config.RoleDecode)
	p := launch(t, s.binary, prefill.url, decode.url, "--hand-back", "now")
	tokenizer := &engine{role: config.RolePrefill, url: prefill.engine, client: s.client}
	for _, kind := range []string{chatPrompt, textPrompt, idsPrompt} {
		c := dialogue{name: "a simulated hand-back of " + kind, prompt: kind, maxTokens: readByLeg}.begin(tokenizer)
		if got := p.ask(t, c.next(t, 1)); got.fault != "" {
			t.Fatalf("%s, simulated: %s", c.name, got)
		}
	}
	p.awaitHandBacks(t, 3)
	engines, simulated := answerShapesOf(firstChunks(s.handedBack)), answerShapesOf(firstChunks(prefill.seen()))
	if len(engines) == 0 {
		t.Error("no hand-back was recorded")
	}
	unlike := differences(engines, simulated)
	if len(unlike) > 0 {
		t.Errorf("differences:\n  %s", strings.Join(unlike, "\n  "))
	}
	return fmt.Sprintf("%d of %d kinds, %d differences", len(firstChunks(s.handedBack)), len(engines), len(unlike))
}

// firstChunks are the hand-back legs among some exchanges, with the first event of each.
func firstChunks(exchanges []exchange) (legs []exchange) {
	for _, x := range exchanges {
		if isHandBack(x) {
			x.answer, _, _ = bytes.Cut(x.answer, []byte("\n\n"))
			legs = append(legs, x)
		}
	}
	return legs
}
