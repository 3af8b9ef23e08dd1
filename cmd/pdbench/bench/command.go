package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"carryover/cmd/pdbench/contender"
)

type options struct {
	site       contender.Site
	out        string
	workloads  []string
	contenders []string
	smoke      bool
}

// Command runs the measurements that its arguments ask for, prints the report, and returns the exit code.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := parseFlags(args, stderr)
	if err != nil {
		return 0, err
	}
	code, err := measure(ctx, o, stdout, stderr)
	if err != nil {
		return 0, err
	}
	return code, nil
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	o := options{}
	set := flag.NewFlagSet("pdbench bench", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.site.Carryover, "carryover", "bin/carryover", "program to measure")
	set.StringVar(&o.site.PythonExample, "python-example", "", "vLLM's examples/…/disagg_proxy_multiturn.py; without it nothing is compared with python")
	set.StringVar(&o.site.Python, "python", "bin/bench-python/bin/python", "interpreter with what the example needs, which scripts/need-bench-python.sh makes")
	set.StringVar(&o.out, "out", "bin/bench", "folder for bench.json, bench.md and the logs of all processes")
	set.BoolVar(&o.smoke, "smoke", false, "run everything once, briefly, and judge only that nothing goes wrong")
	workloads := set.String("workloads", "", "only these, separated by commas: "+strings.Join(workloadNames(), ", "))
	contenders := set.String("contenders", "", "only these, separated by commas: "+strings.Join(contenderNames(), ", "))
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected %q", set.Arg(0))
	}
	o.workloads, o.contenders = listOf(*workloads), listOf(*contenders)
	return o, errors.Join(checkNames("workload", o.workloads, workloadNames()), checkNames("contender", o.contenders, contenderNames()))
}

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
	for _, c := range contender.All() {
		names = append(names, c.Name)
	}
	return names
}

// checkNames refuses unknown names, which would otherwise silently select nothing.
func checkNames(what string, names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no %s %q; there are %s", what, name, strings.Join(known, ", "))
		}
	}
	return nil
}

func measure(ctx context.Context, o options, stdout, stderr io.Writer) (int, error) {
	o.site.Logs = filepath.Join(o.out, "logs")
	if err := os.RemoveAll(o.site.Logs); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(o.site.Logs, 0o755); err != nil {
		return 0, err
	}
	if o.site.Self == nil {
		self, err := os.Executable()
		if err != nil {
			return 0, err
		}
		o.site.Self = []string{self}
	}
	todo := only(groups(), o.workloads, o.contenders)
	if len(todo) == 0 {
		return 0, errors.New("none of the workloads has one of the contenders")
	}
	if o.smoke {
		todo = brief(todo)
	}
	r := report{Began: time.Now(), Brief: o.smoke, Machine: lookAround(ctx, &o.site)}
	b := &bench{site: &o.site, say: stderr}
	var err error
	if r.Results, err = b.measureAll(ctx, todo); len(r.Results) == 0 {
		return 0, err
	}
	r.Took = time.Since(r.Began)
	if !o.smoke {
		r.Verdicts = judge(r.Results)
	}
	fmt.Fprint(stdout, r.markdown())
	return r.exit(), errors.Join(err, r.write(filepath.Join(o.out, "bench"))) // what was measured before an error is worth having
}
