package fleet

import "context"

// Counts are the counts of a fleet's engines.
type Counts struct {
	Prompt, Computed                 int // tokens of turns on prefill
	HandBacks                        int
	HandBackTokens, HandBackComputed int
	Misuse, Leased, Preempted        int
}

// Count asks the engines for their counts.
func (f *Fleet) Count(ctx context.Context) (c Counts, err error) {
	for n, e := range f.Engines() {
		s, err := e.Stats(ctx)
		if err != nil {
			return c, err
		}
		if n < len(f.Prefill) {
			c.Prompt += s.PromptTokens - s.HandBackTokens
			c.Computed += s.ComputedTokens - s.HandBackComputedTokens
			c.HandBacks += s.HandBacks
			c.HandBackTokens += s.HandBackTokens
			c.HandBackComputed += s.HandBackComputedTokens
			c.Leased += s.LeasedHandBacks
		}
		c.Misuse += s.CorruptReads + s.Poisoned + s.DoubleReads + s.ExpiredReads + s.UnknownReads + s.UnevenHandBacks + s.OtherSalts
		c.Preempted += s.Preemptions
	}
	return c, nil
}

// Since returns the counts since an earlier count, except misuse, which counts from the start.
func (c Counts) Since(before Counts) Counts {
	return Counts{
		Prompt: c.Prompt - before.Prompt, Computed: c.Computed - before.Computed, HandBacks: c.HandBacks - before.HandBacks,
		HandBackTokens: c.HandBackTokens - before.HandBackTokens, HandBackComputed: c.HandBackComputed - before.HandBackComputed,
		Leased: c.Leased - before.Leased, Preempted: c.Preempted - before.Preempted,
		Misuse: c.Misuse, // including the warm-up
	}
}
