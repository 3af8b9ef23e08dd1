package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// bench measures.
type bench struct {
	site    *site
	proc    procfs
	profile string // folder for CPU profiles, "" for none
	say     io.Writer
}

// cell is a contender at a workload, with engines of the workload's own, which is measured once in each round.
type cell struct {
	contender contender
	engines   *engines
	in        *entrant
	result    result
}

// measureAll measures one group after the other.
func (b *bench) measureAll(ctx context.Context, all []group) ([]result, error) {
	var results []result
	for _, g := range all {
		of, err := b.group(ctx, g)
		if err != nil {
			return results, err
		}
		results = append(results, of...)
	}
	return results, nil
}

// group starts all contenders of the workloads of a group, and has them take turns.
func (b *bench) group(ctx context.Context, g group) ([]result, error) {
	var cells []*cell
	defer func() {
		for _, c := range slices.Backward(cells) {
			c.in.stop()
		}
	}()
	for _, w := range g.workloads {
		e, stop, err := b.site.startEngines(ctx, w)
		if err != nil {
			return nil, err
		}
		defer stop()
		for _, name := range w.Contenders {
			c, err := b.enter(ctx, w, name, e)
			if err != nil {
				return nil, fmt.Errorf("%s at %s: %w", name, w.Name, err)
			}
			cells = append(cells, c)
		}
	}
	for round := range g.rounds {
		for _, i := range order(len(cells), round) {
			if err := b.measure(ctx, cells[i]); err != nil {
				return nil, err
			}
		}
	}
	var results []result
	for _, c := range cells {
		b.takeProfile(ctx, c)
		results = append(results, c.result)
	}
	return results, nil
}

// order returns in which order n contenders take their turns in a round. It is shifted from round to round, so that each has another
// place, and every second one is turned round, so that each has another predecessor, whose connections are just being closed.
func order(n, round int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = (i + 2*round) % n
	}
	if round%2 == 1 {
		slices.Reverse(list)
	}
	return list
}

// startEngines starts engines as a workload wants them.
func (s *site) startEngines(ctx context.Context, w workload) (*engines, func(), error) {
	var line string
	p, err := start(ctx, s.own(command{name: "engines", log: s.log(w, "engines"), firstLine: &line}, "engines"))
	if err != nil {
		return nil, nil, err
	}
	e := &engines{}
	if err = json.Unmarshal([]byte(line), e); err == nil {
		err = e.set(ctx, w.pace())
	}
	if err != nil {
		p.stop()
		return nil, nil, fmt.Errorf("engines: %w", err)
	}
	return e, p.stop, nil
}

// enter starts a contender. One that can't be measured here has an entrant too, at which nothing runs.
func (b *bench) enter(ctx context.Context, w workload, name string, e *engines) (*cell, error) {
	list := contenders()
	at := slices.IndexFunc(list, func(c contender) bool { return c.name == name })
	if at < 0 {
		return nil, errors.New("there is no such contender")
	}
	c := &cell{contender: list[at], engines: e, in: &entrant{}, result: result{Workload: w, Contender: name}}
	in, err := c.contender.start(ctx, b.site, w, e)
	if why, ok := missing(err); ok {
		c.result.NotMeasured = why
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.in = in
	return c, nil
}

// measure adds a round to the cell's result. What a contender does wrong is part of the result; an error is one of ours.
func (b *bench) measure(ctx context.Context, c *cell) error {
	if c.result.NotMeasured != "" {
		return nil
	}
	began := time.Now()
	o, err := b.run(ctx, c, nil)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.result.Wrong = append(c.result.Wrong, strings.ReplaceAll(err.Error(), "\n", "; "))
		fmt.Fprintf(b.say, "%-14s %-14s %v\n", c.result.Workload.Name, c.contender.name, err)
		return nil
	}
	c.result.add(o)
	last := c.result.Rounds[len(c.result.Rounds)-1]
	fmt.Fprintf(b.say, "%-14s %-14s %5.1f s  %s\n", c.result.Workload.Name, c.contender.name, time.Since(began).Seconds(), last)
	return nil
}

// run puts the workload on a contender once, and reads what its processes use meanwhile. also runs when the warm-up is over.
func (b *bench) run(ctx context.Context, c *cell, also func()) (outcome, error) {
	if err := c.engines.reset(ctx); err != nil {
		return outcome{}, err
	}
	w := c.result.Workload
	if c.contender.most > 0 {
		w.Conversations = min(w.Conversations, c.contender.most)
	}
	var faults []error // of reading /proc
	read := func() (u usage) {
		if c.in.measured == nil {
			return usage{}
		}
		u, err := b.proc.usage(c.in.measured.pid)
		faults = append(faults, err)
		return u
	}
	if c.in.measured != nil {
		faults = append(faults, b.proc.resetPeak(c.in.measured.pid))
	}
	var before, after usage
	var held int64
	l := load{workload: w, url: c.in.url, direct: c.in.direct, hides: c.in.hides,
		begin: func() {
			before = read()
			if also != nil {
				also()
			}
		},
		end:  func() { after = read() },
		held: func() { held = read().resident },
	}
	o, err := l.run(ctx)
	if err = errors.Join(append(faults, err)...); err != nil {
		return outcome{}, err
	}
	o.CPU, o.Base, o.Peak, o.Held = after.cpu-before.cpu, before.resident, after.peak, held
	f, counts, err := c.engines.faults(ctx)
	o.Faults, o.Hits, o.HandOvers = f, counts.Hits, counts.Decodes
	return o, err
}

// String lists figures by their names.
func (f figures) String() string {
	text := ""
	for _, name := range []figure{cpuTurn, cpuChunk, turnRate, chunkRate, firstP50, gapP99, streamKB, peakMB, hitPercent} {
		if value, ok := f[name]; ok {
			text += fmt.Sprintf("%s %s  ", name, threeDigits(value))
		}
	}
	return text
}
