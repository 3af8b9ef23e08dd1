package keep

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/talk"
)

// The engines of one policy. A cache of decode has about as many tokens as prefill computes in 150 seconds, as in deployments.
const (
	engines       = 2 // of each role
	blockSize     = 16
	prefillBlocks = 65_536
	decodeBlocks  = 18_750
	decoderTTL    = 480 * time.Second // vLLM's
	ticketTTL     = 450 * time.Second // the default
	answerTokens  = 1000              // more than any answer has
)

// config says what runs for a policy. The proxy counts in wall time. Among its waits that no setting shortens is that of a release for a
// turn that carries it, five seconds at most; without a backlog it is one second.
func (o options) config(p policy) fleet.Config {
	role := func(blocks int) (list [][]string) {
		for range engines {
			list = append(list, []string{"--blocks", strconv.Itoa(blocks), "--block-size", strconv.Itoa(blockSize), "--kv-ttl", decoderTTL.String()})
		}
		return list
	}
	return fleet.Config{
		Binary: o.binary, Secret: strings.Repeat("keep-report ", 5), Scale: float64(o.clock), Prefill: role(prefillBlocks), Decode: role(decodeBlocks),
		Serve: append([]string{"--decoder-kv-ttl", decoderTTL.String(), "--ttl", wall(o.clock, ticketTTL)}, p.flags(o.clock)...),
	}
}

// side is one policy's engines, its proxy and its clients.
type side struct {
	policy policy
	fleet  *fleet.Fleet
	client *talk.Client
}

// start starts a side and has its proxy know the engines.
func (o options) start(ctx context.Context, p policy) (*side, error) {
	f, err := fleet.Start(ctx, o.config(p))
	if err != nil {
		return nil, err
	}
	s := &side{policy: p, fleet: f, client: talk.NewClient(f.URL, o.clock, answerTokens)}
	if err := s.client.WarmUp(ctx); err != nil {
		return nil, errors.Join(err, s.stop(io.Discard))
	}
	return s, nil
}

// stop shows what the proxy's log has of faults.
func (s *side) stop(faults io.Writer) error {
	s.client.Close()
	log, err := s.fleet.Stop()
	fleet.ShowFaults(log, faults)
	return err
}

// run holds the conversations of a workload through all policies at once, and returns the figures of each by its name.
func run(ctx context.Context, o options, w workload, faults io.Writer) (results map[string]*figures, err error) {
	var mu sync.Mutex // guards sides and results
	var sides []*side
	defer func() {
		for _, s := range sides {
			err = errors.Join(err, s.stop(faults))
		}
	}()
	var starting errgroup.Group // its processes outlive it
	for _, p := range policies() {
		starting.Go(func() error {
			s, err := o.start(ctx, p)
			if err == nil {
				mu.Lock()
				sides = append(sides, s)
				mu.Unlock()
			}
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, err
	}
	list := w.plan(o.seed, o.warm+o.long)
	results = map[string]*figures{}
	holding, holdCtx := errgroup.WithContext(ctx)
	for _, s := range sides {
		holding.Go(func() error {
			f, err := o.hold(holdCtx, s, list)
			mu.Lock()
			results[s.policy.name] = f
			mu.Unlock()
			return err
		})
	}
	return results, holding.Wait()
}

// hold holds the conversations of a side, and counts what its engines do behind the warm-up.
func (o options) hold(ctx context.Context, s *side, list []talk.Conversation) (*figures, error) {
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, o.clock.Wall(o.warm+o.long))
	defer cancel()
	f := &figures{perToken: fleet.PrefillPerToken}
	group, groupCtx := errgroup.WithContext(ctx)
	var turns talk.Record
	group.Go(func() (err error) {
		turns, err = s.client.HoldWhile(groupCtx, asking, list)
		return err
	})
	group.Go(func() error { return o.count(groupCtx, s.fleet, f) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	misuse, err := s.fleet.Count(ctx)
	f.counted.Misuse = misuse.Misuse
	counts := began.Add(o.clock.Wall(o.warm))
	for _, t := range turns {
		if t.Err != nil || !t.Began.Before(counts) {
			f.turns = append(f.turns, t)
		}
	}
	return f, err
}
