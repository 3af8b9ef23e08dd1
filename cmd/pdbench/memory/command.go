package memory

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/process"
	"carryover/cmd/pdbench/result"
)

// options are the flags. Sizes are in bytes, bounds in KiB per stream.
type options struct {
	binary       string
	streams      int
	proof        string
	small, large int
	limit, more  float64
	smoke        bool
}

// timeLimit bounds a report.
const timeLimit = 8 * time.Minute

// Command prints the report that its arguments ask for. The code is that of the program's exit.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o := options{}
	set := flag.NewFlagSet("pdbench memory", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.binary, "binary", "bin/carryover", "program to measure")
	set.IntVar(&o.streams, "streams", 2000, "open streams")
	set.StringVar(&o.proof, "proof", load.ProofAuto, "mode of proof")
	set.IntVar(&o.small, "small", 2<<10, "bytes of a small body")
	set.IntVar(&o.large, "large", 64<<10, "bytes of a large body, 0 to leave that out")
	set.Float64Var(&o.limit, "limit", 90, "KiB per stream that are acceptable with small bodies, 0 for no limit")
	set.Float64Var(&o.more, "more", 10, "KiB per stream that a large body may add")
	set.BoolVar(&o.smoke, "smoke", false, "open 100 streams with small bodies, and judge only that nothing goes wrong")
	if err := set.Parse(args); err != nil {
		return result.ExitUsage, err
	}
	if o.smoke {
		o.streams, o.large, o.limit = 100, 0, 0
	}
	return result.Within(ctx, timeLimit, "memory", func(ctx context.Context) error { return report(ctx, o, stdout) })
}

const kib = 1 << 10

// report prints a line for each measurement and returns what is not as it has to be.
func report(ctx context.Context, o options, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "pdbench-memory-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // logs that nobody asked for
	site := &contender.Site{Self: []string{self}, Carryover: o.binary, Logs: folder}
	measured := func(size int, limit string) (load.Outcome, float64, error) {
		seen, err := measure(ctx, site, o.workload(size, limit))
		if err != nil {
			return seen, 0, err
		}
		each := seen.PerStream(o.streams) / kib
		fmt.Fprintf(out, "%.1f KiB resident per open idle stream, %d streams, bodies of %d bytes, proof %s, memory limit %s\n", each, o.streams, size, o.proof, limit)
		return seen, each, nil
	}
	usual, usualEach, err := measured(o.small, "off")
	if err != nil {
		return err
	}
	if o.limit > 0 && usualEach > o.limit {
		return fmt.Errorf("more than the limit of %.0f KiB", o.limit)
	}
	if o.large == 0 {
		return nil
	}
	if _, _, err := measured(o.large, "off"); err != nil {
		return err
	}
	_, each, err := measured(o.large, fmt.Sprintf("%dKiB", usual.Held/kib+int64(o.more*float64(o.streams))))
	if err == nil && each-usualEach > o.more {
		err = fmt.Errorf("a large body adds more than %.0f KiB", o.more)
	}
	return err
}

// How long streams are held, and the longest pause between two of their chunks that engines know.
const (
	heldFor = time.Second
	pause   = 4 * time.Second
)

// workload is streams that are open and say as little as they can.
func (o options) workload(size int, limit string) load.Workload {
	return load.Workload{
		Name: fmt.Sprintf("memory %d %s", size, limit), Conversations: o.streams, Turns: 1, First: size, Stream: true, Chunks: 600, Gap: pause,
		IDs: engines.IDsOfPlugIn, Proof: o.proof, Memory: limit, Open: true, Time: heldFor,
	}
}

// measure opens the streams in a fresh process.
func measure(ctx context.Context, site *contender.Site, w load.Workload) (load.Outcome, error) {
	pair, stop, err := site.StartEngines(ctx, w)
	if err != nil {
		return load.Outcome{}, err
	}
	defer stop()
	carryover, ok := contender.Named(contender.Carryover)
	if !ok {
		return load.Outcome{}, errors.New("there is no " + contender.Carryover)
	}
	in, err := carryover.Start(ctx, site, w, pair)
	if err != nil {
		return load.Outcome{}, err
	}
	defer in.Stop()
	seen, err := in.Measure(ctx, process.OpenFS(), w, pair, nil)
	if err == nil && (seen.Errors > 0 || seen.Streams < w.Conversations || seen.Faults.Any()) {
		err = fmt.Errorf("%d of %d streams were open, %d errors (%s), faults %+v", seen.Streams, w.Conversations, seen.Errors, seen.Why, seen.Faults)
	}
	return seen, err
}
