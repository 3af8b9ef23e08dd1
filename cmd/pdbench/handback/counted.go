package handback

import (
	"context"

	"carryover/cmd/pdbench/fleet"
)

// counted is what the engines of a fleet have counted.
type counted struct {
	prompt, computed                 int // tokens of turns on prefill
	handBacks                        int
	handBackTokens, handBackComputed int
	misuse, leased, preempted        int
}

// count asks the engines.
func count(ctx context.Context, f *fleet.Fleet) (c counted, err error) {
	for _, e := range f.Prefill {
		s, err := e.Stats(ctx)
		if err != nil {
			return c, err
		}
		c.prompt += s.PromptTokens - s.HandBackTokens
		c.computed += s.ComputedTokens - s.HandBackComputedTokens
		c.handBacks += s.HandBacks
		c.handBackTokens += s.HandBackTokens
		c.handBackComputed += s.HandBackComputedTokens
		c.leased += s.LeasedHandBacks
		c.add(s)
	}
	for _, e := range f.Decode {
		s, err := e.Stats(ctx)
		if err != nil {
			return c, err
		}
		c.add(s)
	}
	return c, nil
}

// add adds what is counted of both roles.
func (c *counted) add(s fleet.Stats) {
	c.misuse += s.Corrupt() + s.Unowned() + s.UnevenHandBacks + s.OtherSalts
	c.preempted += s.Preemptions
}

func (c counted) since(before counted) counted {
	return counted{
		prompt: c.prompt - before.prompt, computed: c.computed - before.computed, handBacks: c.handBacks - before.handBacks,
		handBackTokens: c.handBackTokens - before.handBackTokens, handBackComputed: c.handBackComputed - before.handBackComputed,
		leased: c.leased - before.leased, preempted: c.preempted - before.preempted,
		misuse: c.misuse, // of the warm-up, too
	}
}
