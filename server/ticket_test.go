package server_test

import (
	"fmt"
	"testing"
)

// What an answer must show for a ticket to come of it.

func TestTicket_BlocksAreThoseOfTheTokens(t *testing.T) {
	for want, all := range map[string][][][]int{
		"ineligible_bad_params":   {{count(7, 2)}, {count(7, 4)}},
		"yes":                     {{count(7, 3)}},
		"ineligible_block_groups": {{count(7, 3), count(70, 3)}},
	} {
		for _, blocks := range all {
			r := newRig(t, setup{cfg: byTokens})
			r.inIDs(func(a *idAnswer) { a.params["remote_block_ids"] = blocks })
			r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
			r.wantStored(1, want)
		}
	}
}

// A ticket is cut to whole blocks only where prefill has blocks of the same size.
func TestTicket_IsCutOnlyForAPrefillOfTheSameBlockSize(t *testing.T) {
	for _, tc := range []struct {
		block      int
		cut, whole string
	}{
		{rigBlock, "hit;tokens=160;", "hit;tokens=209;"},
		{rigBlock / 2, "miss;reason=history_rewritten", "hit;tokens=209;"},
		{0, "miss;reason=history_rewritten", "hit;tokens=209;"},
	} {
		t.Run(fmt.Sprint(tc.block), func(t *testing.T) {
			r := newRig(t, setup{cfg: byTokens})
			r.inIDs(nil)
			r.tell(r.prefill[0], metricsOf(rigIncarnation, tc.block))
			prompt := count(100, 200)
			r.wantOK(r.sendIDs("cut", true, prompt...), "miss;")
			r.wantOK(r.sendIDs("cut", true, append(prompt[:170:170], count(5, 30)...)...), tc.cut)
			r.wantOK(r.sendIDs("whole", true, prompt...), "miss;")
			r.wantOK(r.sendIDs("whole", true, append(append(prompt, outputIDs()...), 1, 2, 3)...), tc.whole)
		})
	}
}
