package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"carryover/upstream/vllmsim"
)

// What a turn says that prefill was spared, against what the engines count: vLLM tells prompt tokens by their source.

// bySource reads how many prompt tokens the prefill instances have had from a source together.
func (r *rig) bySource(t *testing.T, source string) (tokens int) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^vllm:prompt_tokens_by_source_total\{[^}]*source="` + source + `"[^}]*\} (\S+)$`)
	for _, p := range r.prefill {
		response, err := http.Get(p.URL() + "/metrics") //nolint:noctx // of an instance of this process
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		found := line.FindSubmatch(bytes.TrimSpace(text))
		if err != nil || found == nil {
			t.Fatalf("%s is not told: %v", source, err)
		}
		n, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		tokens += int(n)
	}
	return tokens
}

// readOf is how many tokens a hit says that prefill was spared by what was reused, -1 if it does not say.
func readOf(a *answered) int {
	_, rest, found := strings.Cut(a.reuse(), ";read=")
	digits, _, _ := strings.Cut(rest, ";")
	n, err := strconv.Atoi(digits)
	if !found || err != nil {
		return -1
	}
	return n
}

// fromDecode is the source of what prefill has read.
const fromDecode = "external_kv_transfer"

// credited counts what turns have said and what engines have counted.
type credited struct{ hits, needless, said, read int }

// turns holds one conversation, of which one turn edits the history, and another asks for its answer again.
func (s *credited) turns(t *testing.T, c *listed) {
	t.Helper()
	for turn := 1; turn <= 8; turn++ {
		before := c.bySource(t, fromDecode)
		var a *answered
		switch turn {
		case 4:
			c.prompt[len(c.prompt)/2] ^= 1
			a = c.turn(t)
		case 6:
			c.prompt = c.prompt[:len(c.prompt)-120] // without the answer
			a = c.ask(t, true)
		default:
			a = c.turn(t)
		}
		read, said := c.bySource(t, fromDecode)-before, max(0, readOf(a))
		if said != read {
			t.Errorf("%s, turn %d: X-KV-Reuse %q, and prefill has read %d tokens of decode", c.id, turn, a.reuse(), read)
		}
		if strings.HasPrefix(a.reuse(), "hit;") {
			if s.hits++; readOf(a) < 0 {
				t.Errorf("%s, turn %d: X-KV-Reuse %q does not say what was read", c.id, turn, a.reuse())
			}
			if readOf(a) == 0 {
				s.needless++
			}
		}
		s.said, s.read = s.said+said, s.read+read
	}
}

func TestCredit_TicketsAreWorthWhatPrefillReadsOfDecode(t *testing.T) {
	t.Parallel()
	for _, caching := range []bool{true, false} {
		for prefills := 1; prefills <= 2; prefills++ {
			t.Run(fmt.Sprintf("prefix caching %t, %d prefill", caching, prefills), func(t *testing.T) {
				t.Parallel()
				cfg := vllmsim.DefaultConfig()
				cfg.NoPrefixCaching = !caching
				h := startHanding(t, cfg, prefills, 1, "--routing-prefill", "round_robin")
				var s credited
				for _, id := range []string{"a", "another", "and yet another"} {
					s.turns(t, &listed{handing: h, id: id})
				}
				if s.hits < 12 || s.read == 0 || s.needless == 0 && caching && prefills == 1 {
					t.Errorf("%+v: nothing is shown", s)
				}
				m := scrape(t, h.metrics)
				if got := m.sum("carryover_reuse_tokens_read_total"); int(got) != s.said {
					t.Errorf("the metrics tell of %v tokens, the turns of %d", got, s.said)
				}
				h.verify(t, pins{})
			})
		}
	}
}

// What prefill finds of a hand-back is worth what the hand-back has brought, and not what prefill had of the prompt before.
func TestCredit_HandBacksAreWorthWhatTheyBrought(t *testing.T) {
	t.Parallel()
	for prefills := 1; prefills <= 2; prefills++ {
		t.Run(fmt.Sprintf("%d prefill", prefills), func(t *testing.T) {
			t.Parallel()
			h := startHanding(t, handingConfig(), prefills, 1, atOnce...)
			for i, id := range []string{"a", "another"} {
				c := &listed{handing: h, id: id}
				for turn := 1; turn <= 4; turn++ {
					read := h.bySource(t, fromDecode) // the hand-back of the turn before has it
					a := c.turn(t)
					h.handedBack(t, ends{done: 4*i + turn})
					if said := readOf(a); turn > 1 && (!byEngine(a.reuse()) || said > c.brought || said <= c.brought-h.cfg.BlockSize) {
						t.Errorf("%s, turn %d: X-KV-Reuse %q, and the hand-back has brought %d tokens", id, turn, a.reuse(), c.brought)
					}
					c.brought = h.bySource(t, fromDecode) - read
				}
			}
			h.verifyBack(t, accounted{})
		})
	}
}
