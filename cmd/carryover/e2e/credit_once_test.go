package e2e

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// counting is a program whose saved tokens are added up turn by turn.
type counting struct {
	*rig
	handsBack   bool
	count, read int
	saved       float64 // seconds
}

// turn takes a turn of a conversation. It returns how many tokens prefill has read of decode by the engine's account, and how many the turn says
// were saved.
func (c *counting) turn(t *testing.T, id string, messages speech) (a *answered, read, said int) {
	t.Helper()
	c.count++
	external := c.bySource(t, fromDecode)
	members := object{"model": "sim", "messages": messages, "max_tokens": 200}
	if id != "" {
		members["conversation_id"] = id
	}
	if a = c.say(t, members); a.status != http.StatusOK {
		t.Fatalf("turn %d: %s", c.count, a.raw)
	}
	rec := c.turns.await(t, a.header.Get("X-Request-Id"))
	if c.handsBack && !testrig.Eventually(func() bool {
		return int(c.proxy.Server.Counts().HandBacks.Done) == c.count && c.sum("")["running"] == 0
	}) {
		t.Fatalf("turn %d was not handed back", c.count)
	}
	read = c.bySource(t, fromDecode) - external
	if a.hit() && readOf(a) != rec.Reuse.Read {
		t.Errorf("turn %d: X-KV-Reuse %q, and the record says %d", c.count, a.reuse(), rec.Reuse.Read)
	}
	c.read, c.saved = c.read+rec.Reuse.Read, c.saved+rec.Reuse.Saved.Seconds()
	return a, read, rec.Reuse.Read
}

// What turns say that was read is what the engines count as read of decode, whatever their client makes of its history. Without tickets it is
// what the hand-back behind the turn before has read, but for the end of the last block, which no cache keeps. Header, record, metrics, the
// journal's turns, its sums and its minutes tell the same.
func TestCredit_IsTheEnginesOwn(t *testing.T) {
	for name, handsBack := range map[string]bool{"tickets": false, "hand-back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &counting{handsBack: handsBack, rig: startRig(t, rigConfig{
				flags: []string{"--hand-back", choose(handsBack, "now", "off"), "--conversation-by-content", "on"},
			})}
			block := vllmsim.DefaultConfig().BlockSize
			last, before := "", 0 // what the hand-back behind the turn before of this kind has read
			take := func(kind, id string, messages speech) *answered {
				if kind != last {
					last, before = kind, 0
				}
				a, read, said := c.turn(t, id, messages)
				if !handsBack && said != read || handsBack && (said-before >= block || before-said >= block) {
					t.Errorf("%s: %q says %d tokens; the engine has read %d, and %d behind the turn before", kind, a.reuse(), said, read, before)
				}
				if hit := a.hit(); hit && (said == 0) != strings.Contains(a.reuse(), ";reason=") {
					t.Errorf("%s: %q does not say why a hit saved nothing", kind, a.reuse())
				}
				before = read
				return a
			}
			goOn := func(kind, id string, messages speech) speech {
				for i := range 3 {
					a := take(kind, id, messages)
					messages = append(messages, a.assistant(), says(41+i))
				}
				return messages
			}
			talk := goOn("faithful", "talk", speech{says(40)})
			if c.read == 0 {
				t.Fatal("nothing was read")
			}
			for _, kind := range []string{"replayed", "replayed again"} {
				for n := 1; n < len(talk); n += 2 {
					take(kind, "talk", talk[:n])
				}
			}
			goOn("trimmed", "talk", slices.Clone(talk[2:3]))
			goOn("edited", "talk", append(slices.Clone(talk[:4]), says(50)))
			for _, kind := range []string{"nameless", "nameless, replayed"} {
				goOn(kind, "", speech{says(60)})
			}
			c.verifyTold(t)
		})
	}
}

// verifyTold compares all sums that operators see with those of the turns. The page shows the journal's.
func (c *counting) verifyTold(t *testing.T) {
	t.Helper()
	m := scrape(t, c.metrics())
	records, totals := c.proxy.Journal.Since(0, c.count)
	minutes, listed := uint64(0), 0
	for _, minute := range c.proxy.Journal.Hour(time.Time{}) {
		minutes += minute.SavedTokens
	}
	for _, r := range records {
		listed += max(int(r.Read), 0)
	}
	for what, got := range map[string]int{
		"the metric": int(m.sum("carryover_reuse_tokens_read_total")), "the journal's sum": int(totals.SavedTokens), "its minutes": int(minutes), "its turns": listed,
	} {
		if got != c.read {
			t.Errorf("%s: %d tokens, the turns tell of %d", what, got, c.read)
		}
	}
	if metric := m.sum("carryover_prefill_saved_seconds_total"); math.Abs(metric-c.saved) > 1e-6 || math.Abs(totals.SavedSeconds-c.saved) > 1e-3 || c.saved == 0 {
		t.Errorf("the metric tells of %v s, the journal of %v s, the turns of %v s", metric, totals.SavedSeconds, c.saved)
	}
}

// What a turn says that prefill was spared, against what the engines count: vLLM tells prompt tokens by their source.

// bySource reads how many prompt tokens the prefill instances have had from a source together.
func (r *rig) bySource(t *testing.T, source string) (tokens int) {
	t.Helper()
	for _, p := range r.prefill {
		_, text := r.get(t, p.URL()+"/metrics")
		if m := readScrape(t, text); m.kinds["vllm:prompt_tokens_by_source_total"] != "" {
			tokens += int(m.sum("vllm:prompt_tokens_by_source_total", `source="`+source+`"`))
			continue
		}
		t.Fatalf("%s is not told", source)
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
