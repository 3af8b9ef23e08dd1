package e2e

import (
	"strings"
	"testing"

	"carryover/cmd/carryover/testrig"
)

// handBackModes are the flags of the ways to hand back, each so that a test need not wait for long.
func handBackModes() map[string][]string {
	return map[string][]string{
		"now":  {"--hand-back", "now"},
		"idle": {"--hand-back", "idle", "--hand-back-after", "20ms"},
	}
}

// atOnce hands back at the end of each turn.
var atOnce = []string{"--hand-back", "now"}

// handing are engines on a busy machine, which drops connections late.
var handing = engineWith(`{"lease":10000000000}`)

// ends are the ends of hand-backs.
type ends struct{ done, failed, kept int }

func (r *rig) ends() ends {
	c := r.proxy.Server.Counts().HandBacks
	return ends{int(c.Done), int(c.Failed), int(c.Requeued)}
}

// settle waits until nothing is left to hand back. What a turn leaves is known when its client has the end of the answer.
func (r *rig) settle(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool { return r.proxy.Server.HandBackMemory() == 0 && r.proxy.Server.Counts().Waiting == 0 }) {
		t.Fatalf("%d tickets wait to be handed back, of %+v", r.proxy.Server.Counts().Waiting, r.ends())
	}
}

// handedBack waits until nothing is left to hand back, and wants all hand-backs so far to have ended like this.
func (r *rig) handedBack(t *testing.T, want ends) {
	t.Helper()
	r.settle(t)
	if got := r.ends(); got != want {
		t.Errorf("hand-backs: got %+v, want %+v", got, want)
	}
}

// free waits until decode pins nothing.
func (r *rig) free(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool { return r.atDecode("pins") == 0 }) {
		t.Errorf("decode pins %d answers, want none", r.atDecode("pins"))
	}
}

// held waits until prefill has stopped a hand-back.
func (r *rig) held(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool { return r.atPrefill("held_hand_backs") == 1 }) {
		t.Fatalf("no hand-back is held; %+v", r.ends())
	}
}

// verifyBack is verify of a program that hands back: nothing was read that had not to be, and decode pins nothing beside so many answers.
func (r *rig) verifyBack(t *testing.T, unused int) {
	t.Helper()
	r.verify(t, pins{unused: unused})
	r.nothingWrong(t, "stale_reads", "late_notifications", "declined_reads")
}

// talk is a conversation of the program, whose answers must be those of a lone instance.
func (r *rig) talk(id string) *chatting { return &chatting{rig: r, id: id} }

// byEngine reports whether a turn has found in prefill's own cache what was handed back.
func byEngine(reuse string) bool {
	return strings.HasPrefix(reuse, "hit;") && strings.Contains(reuse, ";proof=engine")
}

// hits takes a turn that finds in prefill's own cache what was handed back.
func (c *chatting) hits(t *testing.T) {
	t.Helper()
	if a := c.turn(t); !byEngine(a.reuse()) {
		t.Errorf("%s, turn %d: X-KV-Reuse %q, want a hit by proof=engine", c.id, c.asks, a.reuse())
	}
}

// listed is a conversation of text completions whose prompts are lists of ids, so that nothing of it must be learnt.
type listed struct {
	*rig
	id, salt string
	prompt   []int
}

// turn asks for what follows more ids, and wants what a lone instance answers.
func (c *listed) turn(t *testing.T) *answered {
	t.Helper()
	c.prompt = append(c.prompt, manyIDs(len(c.prompt)+len(c.id), 150)...)
	return c.ask(t, true)
}

// ask sends the prompt as it is.
func (c *listed) ask(t *testing.T, right bool) *answered {
	t.Helper()
	members := object{"model": "sim", "prompt": c.prompt, "max_tokens": 120, "ignore_eos": true, "return_token_ids": true, "conversation_id": c.id}
	if c.salt != "" {
		members["cache_salt"] = c.salt
	}
	a := c.say(t, members)
	want, err := alone(t.Context(), c.cfg, "/v1/completions", members)
	noError(t, err)
	if err := same(a, want); right && err != nil {
		t.Errorf("%s (%s): %v", c.id, a.reuse(), err)
	}
	_, output := idsOf(a, nil)
	c.prompt = append(c.prompt, output...)
	return a
}
