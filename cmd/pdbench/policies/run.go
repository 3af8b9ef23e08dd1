package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/pdbench/fleet"
	"carryover/cmd/pdbench/talk"
)

// What the engines have in common: requests that run at once, and for how much wall time, which the proxy counts in, they keep blocks.
const (
	maxNumSeqs = 32
	kvTTL      = 480 * time.Second
)

func prefillSlowness() []float64 { return []float64{1, 1, 2, 4} }
func decodeSlowness() []float64  { return []float64{1, 1, 1.5, 2} }

// config says what runs for a policy.
func (o options) config(policy string) fleet.Config {
	engines := func(slowness []float64) (list [][]string) {
		for _, s := range slowness {
			list = append(list, []string{"--slowness", fmt.Sprint(s), "--max-num-seqs", strconv.Itoa(maxNumSeqs), "--kv-ttl", o.clock.Engine(kvTTL).String()})
		}
		return list
	}
	return fleet.Config{
		Binary: o.binary, Secret: strings.Repeat("fleet-report ", 5), Scale: float64(o.clock),
		Prefill: engines(prefillSlowness()), Decode: engines(decodeSlowness()),
		Serve: []string{"--routing-prefill", policy, "--routing-decode", policy},
	}
}

// run holds the conversations through a new fleet with one policy. With kills it ends the first instance of each role in the middle and
// starts it again two seconds of engine time later.
func run(ctx context.Context, o options, policy string, list []talk.Conversation, kills bool) (r outcome, err error) {
	f, err := fleet.Start(ctx, o.config(policy))
	if err != nil {
		return r, err
	}
	r, err = hold(ctx, o, f, list, kills)
	if err == nil {
		r.corrupt, r.double, err = misread(ctx, f)
	}
	log, stopped := f.Stop()
	if err == nil {
		err = stopped
	}
	r.account(f.Prefill, turnLines(log))
	return r, err
}

func hold(ctx context.Context, o options, f *fleet.Fleet, list []talk.Conversation, kills bool) (outcome, error) {
	r := outcome{clock: o.clock}
	c := talk.NewClient(f.URL, o.clock, answerTokens)
	defer c.Close()
	if err := c.WarmUp(ctx); err != nil {
		return r, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		r.turns, err = c.Hold(groupCtx, list)
		return err
	})
	if kills {
		r.victims = []*fleet.Engine{f.Prefill[0], f.Decode[0]}
		group.Go(func() error {
			if err := o.clock.Sleep(groupCtx, o.over/2); err != nil {
				return err
			}
			r.killedAt = time.Now()
			// The outer context: instances outlive the group, whose own ends with the conversations, and are asked what they have read.
			return f.Replace(ctx, r.victims, func() error { return o.clock.Sleep(ctx, 2*time.Second) })
		})
	}
	return r, group.Wait()
}

// misread counts what the engines have read wrongly, and twice or too late.
func misread(ctx context.Context, f *fleet.Fleet) (corrupt, double int, err error) {
	for _, e := range f.Engines() {
		s, err := e.Stats(ctx)
		if err != nil {
			return 0, 0, err
		}
		corrupt += s.Corrupt()
		double += s.Unowned()
	}
	return corrupt, double, nil
}

// turnLine is the log line of a turn, as far as it is read.
type turnLine struct {
	Message string `json:"msg"`
	Turn    string `json:"turn"`
	Prefill string `json:"prefill"`
	Decode  string `json:"decode"`
	Error   string `json:"error"`
}

// turnLines returns those of a proxy's log, by the ids of turns. What is no line of a turn is left out.
func turnLines(log []byte) map[string]turnLine {
	lines := map[string]turnLine{}
	for text := range bytes.Lines(log) {
		var line turnLine
		if json.Unmarshal(text, &line) == nil && line.Message == "turn" {
			lines[line.Turn] = line
		}
	}
	return lines
}
