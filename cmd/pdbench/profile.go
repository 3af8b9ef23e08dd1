package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// profiled are the workloads of which docs/benchmarks.md explains the largest costs.
func profiled() []string { return []string{w1, w2s, w3} }

// takeProfile puts the workload on Carryover once more, and takes a CPU profile meanwhile, which is no part of any figure because it costs
// some CPU time itself. Figures stand without one.
func (b *bench) takeProfile(ctx context.Context, c *cell) {
	if b.profile == "" || c.contender.name != nameCarryover || !slices.Contains(profiled(), c.result.Workload.Name) {
		return
	}
	file := filepath.Join(b.profile, strings.ToLower(c.result.Workload.Name)+".pprof")
	taken := make(chan error, 1) // what becomes of the profile, of which nobody may be left to hear
	seconds := max(1, int(c.result.Workload.Time/time.Second))
	_, err := b.run(ctx, c, func() {
		go func() {
			taken <- fetch(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", c.in.admin, seconds), file)
		}() // ends with the profile, or ctx
	})
	if err == nil {
		err = <-taken
	}
	if err != nil {
		fmt.Fprintf(b.say, "%-14s no profile: %v\n", c.result.Workload.Name, err)
		return
	}
	fmt.Fprintf(b.say, "%-14s profile in %s\n", c.result.Workload.Name, file)
}

// fetch writes what url answers into a file.
func fetch(ctx context.Context, url, file string) error {
	body, err := get(ctx, url)
	if err != nil {
		return err
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
