package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
)

type bench struct {
	site *contender.Site
	say  io.Writer
}

// cell is a contender at a workload, with its own engines. Each round measures it once.
type cell struct {
	contender contender.Contender
	engines   *engines.Pair
	in        *contender.Entrant
	entry     entry
}

func (b *bench) measureAll(ctx context.Context, all []group) ([]entry, error) {
	var results []entry
	for _, g := range all {
		of, err := b.group(ctx, g)
		if err != nil {
			return results, err
		}
		results = append(results, of...)
	}
	return results, nil
}

// group starts all contenders of a group's workloads and measures them in turns.
func (b *bench) group(ctx context.Context, g group) ([]entry, error) {
	var cells []*cell
	defer func() {
		for _, c := range slices.Backward(cells) {
			c.in.Stop()
		}
	}()
	for _, w := range g.workloads {
		e, stop, err := b.site.StartEngines(ctx, w)
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
	var results []entry
	for _, c := range cells {
		results = append(results, c.entry)
	}
	return results, nil
}

// order returns the order of n contenders in a round. Each round shifts it, so that each contender has another place. Each second round
// reverses it, so that each has another predecessor, whose connections are just being closed.
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

// enter starts a contender. A contender that cannot be measured here has an entrant without processes.
func (b *bench) enter(ctx context.Context, w load.Workload, name string, e *engines.Pair) (*cell, error) {
	named, ok := contender.Named(name)
	if !ok {
		return nil, errors.New("there is no such contender")
	}
	c := &cell{contender: named, engines: e, in: &contender.Entrant{}, entry: entry{Workload: w, Contender: name}}
	in, err := c.contender.Start(ctx, b.site, w, e)
	if why, ok := errors.AsType[contender.NotMeasured](err); ok {
		c.entry.NotMeasured = string(why)
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.in = in
	return c, nil
}

// measure adds a round to the cell's entry. The entry records faults of the contender; an error is a fault of pdbench.
func (b *bench) measure(ctx context.Context, c *cell) error {
	if c.entry.NotMeasured != "" {
		return nil
	}
	began := time.Now()
	w := c.entry.Workload
	if c.contender.Most > 0 {
		w.Conversations = min(w.Conversations, c.contender.Most)
	}
	o, err := c.in.Measure(ctx, w, c.engines)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.entry.Wrong = append(c.entry.Wrong, strings.ReplaceAll(err.Error(), "\n", "; "))
		fmt.Fprintf(b.say, "%-14s %-14s %v\n", w.Name, c.contender.Name, err)
		return nil
	}
	c.entry.add(o)
	last := c.entry.Rounds[len(c.entry.Rounds)-1]
	fmt.Fprintf(b.say, "%-14s %-14s %5.1f s  %s\n", w.Name, c.contender.Name, time.Since(began).Seconds(), last)
	return nil
}

func (f figures) String() string {
	text := ""
	for _, name := range []figure{cpuTurn, cpuChunk, turnRate, chunkRate, firstP50, gapP99, streamKB, peakMB, hitPercent} {
		if value, ok := f[name]; ok {
			text += fmt.Sprintf("%s %s  ", name, threeDigits(value))
		}
	}
	return text
}
