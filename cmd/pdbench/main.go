package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := program(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags of a run.
type options struct {
	site
	out        string
	profile    string
	markdown   string
	vllm       vllmVersion
	workloads  []string
	contenders []string
	smoke      bool
}

// program runs the command line. Sub-commands are parts of a measurement, each in a process of its own.
func program(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var err error
	code := exitOK
	switch {
	case len(args) > 0 && args[0] == "engines":
		err = serveEngines(ctx, stdout)
	case len(args) > 0 && args[0] == "relay":
		err = relayCommand(ctx, args[1:], stdout, stderr)
	default:
		var o options
		if o, err = parseFlags(args, stderr); err == nil {
			code, err = measure(ctx, o, stdout, stderr)
		}
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "pdbench: %v\n", err)
		return exitUsage
	}
	return code
}

func relayCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	set := flag.NewFlagSet("pdbench relay", flag.ContinueOnError)
	set.SetOutput(stderr)
	to := set.String("to", "", "host:port that bytes go to")
	if err := set.Parse(args); err != nil {
		return err
	}
	return serveRelay(ctx, *to, stdout)
}

// parseFlags reads the flags of a run.
func parseFlags(args []string, stderr io.Writer) (options, error) {
	o := options{}
	set := flag.NewFlagSet("pdbench", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.carryover, "carryover", "bin/carryover", "program to measure")
	set.StringVar(&o.pythonExample, "python-example", "", "vLLM's examples/…/disagg_proxy_multiturn.py; without it nothing is compared with python")
	set.StringVar(&o.python, "python", "bin/bench-python/bin/python", "interpreter with what the example needs, which scripts/need-bench-python.sh makes")
	set.StringVar(&o.out, "out", "bin/bench", "folder for bench.json, bench.md, bench.svg and the logs of all processes")
	set.StringVar(&o.profile, "profile", "", "folder for CPU profiles of carryover at W1, W2s and W3, of a round that does not count")
	set.StringVar(&o.markdown, "markdown", "", "measure nothing, and print the tables of this bench.json, as docs/benchmarks.md has them")
	set.BoolVar(&o.smoke, "smoke", false, "run everything once, briefly, and judge only that nothing goes wrong")
	vllm := set.String("vllm", string(vllm033), "version of vLLM whose answers the engines give, 0.32 or 0.33, where the workload is not of one")
	workloads := set.String("workloads", "", "only these, separated by commas: "+strings.Join(workloadNames(), ", "))
	contenders := set.String("contenders", "", "only these, separated by commas: "+strings.Join(contenderNames(), ", "))
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected %q", set.Arg(0))
	}
	o.workloads, o.contenders, o.vllm = listOf(*workloads), listOf(*contenders), vllmVersion(*vllm)
	if *vllm == "" || !o.vllm.known() {
		return o, fmt.Errorf("there are no engines of vLLM %q; there are %s and %s", *vllm, vllm032, vllm033)
	}
	return o, errors.Join(checkNames("workload", o.workloads, workloadNames()), checkNames("contender", o.contenders, contenderNames()))
}

// listOf splits a list that a flag gives.
func listOf(text string) (names []string) {
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func workloadNames() (names []string) {
	for _, g := range groups() {
		for _, w := range g.workloads {
			names = append(names, w.Name)
		}
	}
	return names
}

func contenderNames() (names []string) {
	for _, c := range contenders() {
		names = append(names, c.name)
	}
	return names
}

// checkNames refuses names of what there is not: it would be missing without a word.
func checkNames(what string, names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no %s %q; there are %s", what, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// measure runs all and prints what it has come to.
func measure(ctx context.Context, o options, stdout, stderr io.Writer) (int, error) {
	if o.markdown != "" {
		r, err := readReport(o.markdown)
		fmt.Fprint(stdout, r.markdown())
		return exitOK, err
	}
	o.logs = filepath.Join(o.out, "logs")
	if err := os.RemoveAll(o.logs); err != nil {
		return exitUsage, err
	}
	for _, folder := range []string{o.logs, o.profile} {
		if folder == "" {
			continue
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return exitUsage, err
		}
	}
	if o.self == nil {
		self, err := os.Executable()
		if err != nil {
			return exitUsage, err
		}
		o.self = []string{self}
	}
	todo := only(ofVersion(groups(), o.vllm), o.workloads, o.contenders)
	if len(todo) == 0 {
		return exitUsage, errors.New("none of the workloads has one of the contenders")
	}
	if o.smoke {
		todo = brief(todo)
	}
	r := report{Began: time.Now(), Brief: o.smoke, Machine: lookAround(ctx, &o.site)}
	r.Machine.Versions = append(r.Machine.Versions, "engines as of vLLM "+string(o.vllm))
	b := &bench{site: &o.site, proc: openProc(), profile: o.profile, say: stderr}
	var err error
	if r.Results, err = b.measureAll(ctx, todo); len(r.Results) == 0 {
		return exitUsage, err
	}
	r.Took = time.Since(r.Began)
	if !o.smoke {
		r.Verdicts = judge(r.Results)
	}
	fmt.Fprint(stdout, r.markdown())
	return r.exit(), errors.Join(err, r.write(filepath.Join(o.out, "bench"))) // what was measured before an error is worth having
}
