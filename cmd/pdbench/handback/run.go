package handback

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/talk"
)

const (
	engines       = 4 // of each role
	blockSize     = 16
	prefillBlocks = 131072
	decodeBlocks  = 26             // of one decode engine, for each conversation, so that off pins nearly its whole budget
	lateClock     = talk.Clock(40) // of rows with late turns
)

// Durations in engine time. The proxy gets them in wall time, except decoderTTL.
const (
	decoderTTL    = 480 * time.Second // vLLM's
	ticketTTL     = 450 * time.Second // the default
	handBackAfter = 5 * time.Second   // the default
)

func (o options) blocksOfDecode() int { return max(1024, decodeBlocks*o.conversations) }

func (o options) clockOf(m mode) talk.Clock {
	if m.late {
		return lateClock
	}
	return o.clock
}

// config returns the processes of a row. The proxy counts in wall time, so its durations are scaled, except --decoder-kv-ttl. Tickets end
// before the engines' pins by the same engine time as with the defaults.
func (o options) config(m mode) fleet.Config {
	clock := o.clockOf(m)
	scaled := func(d time.Duration) string { return clock.Wall(d).Round(time.Millisecond).String() }
	role := func(blocks int) (list [][]string) {
		for range engines {
			list = append(list, []string{"--blocks", strconv.Itoa(blocks), "--block-size", strconv.Itoa(blockSize), "--kv-ttl", decoderTTL.String()})
		}
		return list
	}
	return fleet.Config{
		Binary: o.binary, Secret: strings.Repeat("handback-report ", 4), Scale: float64(clock),
		Prefill: role(prefillBlocks), Decode: role(o.blocksOfDecode()),
		Serve: []string{"--decoder-kv-ttl", decoderTTL.String(), "--ttl", scaled(ticketTTL), "--hand-back", m.handBack, "--hand-back-after", scaled(handBackAfter)},
	}
}

// run holds the conversations of a row through a new fleet, and shows the faults in the proxy's log.
func run(ctx context.Context, o options, m mode, faults io.Writer) (r *outcome, err error) {
	f, err := fleet.Start(ctx, o.config(m))
	if err != nil {
		return nil, err
	}
	c := talk.NewClient(f.URL, o.clockOf(m), answerTokens)
	defer c.Close()
	if err = warmUp(ctx, f, c, o.clockOf(m), m); err == nil {
		r, err = hold(ctx, o, m, f, c)
	}
	log, stopped := f.Stop()
	fleet.ShowFaults(log, faults)
	if err == nil {
		err = stopped
	}
	return r, err
}

// warmUp leaves nothing pinned.
func warmUp(ctx context.Context, f *fleet.Fleet, c *talk.Client, clock talk.Clock, m mode) error {
	if err := c.WarmUp(ctx); err != nil {
		return err
	}
	if m.handBack != "off" {
		if err := clock.Sleep(ctx, 8*handBackAfter); err != nil {
			return err
		}
	}
	for _, e := range f.Engines() {
		if err := e.Advance(ctx, decoderTTL); err != nil {
			return err
		}
	}
	return nil
}

// hold holds the conversations, and counts the engines' work meanwhile.
func hold(ctx context.Context, o options, m mode, f *fleet.Fleet, c *talk.Client) (*outcome, error) {
	r := &outcome{mode: m, clock: o.clockOf(m), capacity: engines * o.blocksOfDecode() * blockSize}
	before, err := f.Count(ctx)
	if err != nil {
		return nil, err
	}
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	sampled := make(chan error, 1)
	go func() { sampled <- r.sample(sampling, f, before) }()
	r.turns, err = c.Hold(ctx, plan(o, m))
	stop()
	if failed := <-sampled; err == nil {
		err = failed
	}
	// The last requested hand-backs come after the last turn.
	if err == nil && m.handBack != "off" {
		err = r.clock.Sleep(ctx, 4*handBackAfter)
	}
	if err != nil {
		return nil, err
	}
	after, err := f.Count(ctx)
	r.counted = after.Since(before)
	return r, err
}

// sampleEvery is how often decode reports its pins, in wall time.
const sampleEvery = 25 * time.Millisecond

// sample sums up decode's pinned tokens until ctx ends. When all late conversations have begun and no next turn has, it notes the counts so
// far.
func (r *outcome) sample(ctx context.Context, f *fleet.Fleet, before fleet.Counts) error {
	timer := time.NewTimer(sampleEvery)
	defer timer.Stop()
	last := time.Now()
	due := last.Add(sampleEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now, tokens := time.Now(), 0
		timer.Reset(sampleEvery)
		for _, e := range f.Decode {
			s, err := e.Stats(ctx)
			if err != nil {
				return unlessEnded(ctx, err)
			}
			tokens += s.PinnedTokens
		}
		r.late = append(r.late, max(0, now.Sub(due)))
		due = now.Add(sampleEvery)
		r.pinned += float64(tokens) * r.clock.Engine(now.Sub(last)).Seconds()
		r.span += r.clock.Engine(now.Sub(last))
		last = now
		if r.mode.late && r.firsts == nil && r.span > (lateOver+lateThink)/2 {
			firsts, err := f.Count(ctx)
			if err != nil {
				return unlessEnded(ctx, err)
			}
			firsts = firsts.Since(before)
			r.firsts = &firsts
		}
	}
}

// unlessEnded returns nil for a request that the end of ctx broke off.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
