package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/process"
)

// profiled are the workloads of which docs/benchmarks.md explains the largest costs.
func profiled() []string { return []string{w1, w2s, w3} }

// takeProfile puts the workload on Carryover once more, and takes a CPU profile meanwhile, which is no part of any figure because it costs
// some CPU time itself. Figures stand without one.
func (b *bench) takeProfile(ctx context.Context, c *cell) {
	if b.profile == "" || c.contender.Name != contender.Carryover || !slices.Contains(profiled(), c.entry.Workload.Name) {
		return
	}
	file := filepath.Join(b.profile, strings.ToLower(c.entry.Workload.Name)+".pprof")
	taken := make(chan error, 1) // what becomes of the profile, of which nobody may be left to hear
	seconds := max(1, int(c.entry.Workload.Time/time.Second))
	_, err := b.run(ctx, c, func() {
		go func() {
			taken <- fetch(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", c.in.Admin, seconds), file)
		}() // ends with the profile, or ctx
	})
	if err == nil {
		err = <-taken
	}
	if err != nil {
		fmt.Fprintf(b.say, "%-14s no profile: %v\n", c.entry.Workload.Name, err)
		return
	}
	fmt.Fprintf(b.say, "%-14s profile in %s\n", c.entry.Workload.Name, file)
}

// fetch writes what url answers into a file.
func fetch(ctx context.Context, url, file string) error {
	body, err := process.Get(ctx, url)
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
