//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"carryover/upstream"
)

func (s *suite) checkAnswers(t *testing.T) string {
	t.Helper()
	if want := len(dialogues()) * turnsPerDialogue; len(s.outcomes) != want {
		t.Errorf("turns: got %d, want %d", len(s.outcomes), want)
	}
	streams, wrong, names := 0, 0, map[string]bool{}
	for _, o := range s.outcomes {
		names[o.name] = true
		if o.asked.stream() {
			streams++
		}
		if !o.got.right(o.want) {
			wrong++
			t.Errorf("%s (%s):\n got %s\nwant %s", o, o.got.reuse.text, o.got, o.want)
		}
	}
	return fmt.Sprintf("%d conversations, %d turns, %d of them streams, %d wrong", len(names), len(s.outcomes), streams, wrong)
}

// The shares that must be reached at least, in percent.
const (
	faithfulHits    = 90
	editedHits      = 60
	confirmedTokens = 60
	sharedHits      = 60 // each replica learns the shapes of requests for itself
)

func (s *suite) checkHits(t *testing.T) string {
	t.Helper()
	later, hits := map[bool]int{}, map[bool]int{} // by faithful
	offered, confirmed, read := 0, 0, 0
	reasons := map[string]int{}
	// From vLLM 0.31 on prefill tells how much it had in caches. With 0.28 the probe of chats is not answered as it must be, so that they miss
	// (why=probe, measured).
	release, _ := upstream.ReleaseOf(s.version(t))
	old := release < "0.31"
	for _, o := range s.outcomes {
		read += o.fromSource[external]
		if o.turn == 1 {
			continue
		}
		later[o.faithful]++
		r := o.got.reuse
		if !r.hit {
			reasons[r.reason]++
			continue
		}
		hits[o.faithful]++
		offered += r.tokens
		confirmed += max(0, r.confirmed)
		if r.proof != "tokens" {
			t.Errorf("%s: proof %q, want tokens", o, r.proof)
		}
		if old {
			continue
		}
		if took := o.fromSource[cached] + o.fromSource[external]; !near(took, r.confirmed) {
			t.Errorf("%s: prefill took %d tokens from caches, confirmed %d, want within one block", o, took, r.confirmed)
		}
		if !near(o.fromSource[external], r.read) {
			t.Errorf("%s: prefill has read %d tokens of decode, %s, want within one block", o, o.fromSource[external], r.text)
		}
	}
	if old { // text completions alone are reused
		if hits[true] == 0 || read == 0 {
			t.Error("nothing was reused")
		}
		return fmt.Sprintf("faithful %s, edited %s, %d read from decode, misses %v",
			share(hits[true], later[true]), share(hits[false], later[false]), read, reasons)
	}
	for _, want := range []struct {
		what                 string
		part, whole, percent int
	}{
		{"hits of faithful later turns", hits[true], later[true], faithfulHits},
		{"hits of edited later turns", hits[false], later[false], editedHits},
		{"confirmed tokens of those offered", confirmed, offered, confirmedTokens},
		{"tokens read from decode", read, 1, 1},
	} {
		if want.whole == 0 || 100*want.part < want.percent*want.whole {
			t.Errorf("%s: got %s, want at least %d %%", want.what, share(want.part, want.whole), want.percent)
		}
	}
	return fmt.Sprintf("faithful %s, edited %s, confirmed tokens %s, %d read from decode, misses %v",
		share(hits[true], later[true]), share(hits[false], later[false]), share(confirmed, offered), read, reasons)
}

// near says whether two numbers of tokens are within one block.
func near(a, b int) bool { return a-b <= blockSize && b-a <= blockSize }

func (s *suite) checkCaches(t *testing.T) string {
	t.Helper()
	return s.askPlainly(t, s.outcomes)
}

// askPlainly asks prefill for what the hits have asked, plainly: its prefix cache holds what it read from decode.
func (s *suite) askPlainly(t *testing.T, outcomes []turnOutcome) string {
	t.Helper()
	var hits []turnOutcome
	var list []asked
	for _, o := range outcomes {
		if o.got.reuse.hit {
			hits, list = append(hits, o), append(list, o.asked.plain())
		}
	}
	wrong, tokens := 0, 0
	for i, got := range askTogether(t, s.client, s.prefill.url, list) {
		o := hits[i]
		tokens += max(0, got.cached)
		if !got.right(o.want) {
			wrong++
			t.Errorf("%s, plain:\n got %s\nwant %s", o, got, o.want)
		}
		if got.cached < blockSize {
			t.Errorf("%s, plain: cached_tokens %d, want at least a block", o, got.cached)
		}
	}
	if len(hits) == 0 {
		t.Error("no hit to look at")
	}
	return fmt.Sprintf("%d plain requests after hits, %d cached tokens, %d wrong", len(hits), tokens, wrong)
}
