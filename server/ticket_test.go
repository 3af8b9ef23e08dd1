package server_test

import (
	"fmt"
	"testing"
)

// What an answer must show for a ticket to come of it.

func TestTicket_BlockCountIsThatOfTheTokens(t *testing.T) {
	for blocks, want := range map[int]string{2: "ineligible_bad_params", 3: "yes", 4: "ineligible_bad_params"} {
		t.Run(fmt.Sprint(blocks), func(t *testing.T) {
			r := newRig(t, setup{})
			r.tell(r.decode[0], metricsOf(rigIncarnation, rigBlock*3/blocks)) // 200 tokens are in three blocks
			r.wantOK(r.turn("c", 1, true), "miss;")
			r.wantStored(1, want)
		})
		t.Run(fmt.Sprint(blocks, " by tokens"), func(t *testing.T) {
			r := newRig(t, setup{cfg: byTokens})
			r.inIDs(func(a *idAnswer) { a.params["remote_block_ids"] = [][]int{count(7, blocks)} })
			r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
			r.wantStored(1, want)
		})
	}
}

func TestTicket_SeveralBlockGroups(t *testing.T) {
	r := newRig(t, setup{cfg: byTokens})
	r.inIDs(func(a *idAnswer) { a.params["remote_block_ids"] = [][]int{count(7, 3), count(70, 3)} })
	prompt := count(100, 200)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
	r.wantStored(1, "ineligible_block_groups")
	follow := append(append(prompt, outputIDs()...), count(500, 80)...)
	r.wantOK(r.sendIDs("c", true, follow...), "miss;reason=first_turn") // a prompt of ids does not tell that it is a later one
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
			edited := append([]int{}, prompt...)
			edited[170] = 5
			r.wantOK(r.sendIDs("cut", true, edited...), tc.cut)
			r.wantOK(r.sendIDs("whole", true, prompt...), "miss;")
			r.wantOK(r.sendIDs("whole", true, append(append(prompt, outputIDs()...), 1, 2, 3)...), tc.whole)
		})
	}
}

// remote_num_tokens may be all ids or one less, so that one id lost or told twice shows in decode's usage only.
func TestTicket_CompletionTokensAreTheOutputIDs(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*idAnswer)
		want  string
	}{
		"right":    {func(*idAnswer) {}, "yes"},
		"one lost": {func(a *idAnswer) { a.told = append(a.told[:4:4], a.told[5:]...) }, "ineligible_token_count"},
		"one doubled": {func(a *idAnswer) {
			a.told = append(append(a.told[:4:4], a.told[3]), a.told[4:]...)
			a.holds(len(a.prompt) + 10)
		}, "ineligible_token_count"},
		"other prompt": {func(a *idAnswer) { a.usage = `{"prompt_tokens":199,"completion_tokens":10}` }, "ineligible_token_count"},
	} {
		ways(t, func(t *testing.T, stream bool) {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, setup{cfg: byTokens})
				r.inIDs(func(a *idAnswer) {
					a.usage = `{"prompt_tokens":200,"completion_tokens":10}`
					tc.spoil(a)
				})
				r.wantOK(r.sendIDs("c", stream, count(100, 200)...), "miss;")
				r.wantStored(1, tc.want)
			})
		})
	}
}

// The plug-in's ids of the output come with the params.
func TestTicket_CompletionTokensAreThePlugInsIDs(t *testing.T) {
	for name, tc := range map[string]struct {
		ids  []int
		want string
	}{"right": {outputIDs(), "yes"}, "one lost": {outputIDs()[1:], "ineligible_token_count"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: byTokens})
			r.inIDs(func(a *idAnswer) {
				a.usage, a.params["output_token_ids"] = `{"prompt_tokens":200,"completion_tokens":10}`, tc.ids
			})
			r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
			r.wantStored(1, tc.want)
		})
	}
}
