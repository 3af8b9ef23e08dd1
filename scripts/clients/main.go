// Clients runs a test suite of a real SDK against the program with simulated engines: it starts them as processes of their own on
// free loopback ports, runs the suite's command with their addresses in its environment, and ends them. When the suite has
// ended, every conversation with an id has had its last turn, so that nothing may be left of it: no request in an engine, no pinned block, no
// ticket in the store; and no block was read wrongly, twice, or too late. It exits 1 if any of that does not hold, or if
// the suite fails. With -unnamed the suite tells no ids, and every turn but the first of each conversation must reuse KV.
//
//	clients -carryover bin/carryover -log DIR [-context N] [-plug-in] [-unnamed] NAME COMMAND [ARGUMENT ...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	binary := flag.String("carryover", "bin/carryover", "program to test")
	folder := flag.String("log", ".", "where the program's log goes")
	tokens := flag.Int("context", 32768, "context length of the engines, in tokens")
	plugIn := flag.Bool("plug-in", false, "the engines' plug-in says the params of streams of the Messages API, and the ids of what it has sampled")
	unnamed := flag.Bool("unnamed", false, "the program looks for no id where the suite's client may tell one, and must find each conversation without")
	limit := flag.Duration("timeout", 3*time.Minute, "how long the suite may take")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "clients: want the suite's NAME and its COMMAND")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, *limit)
	d := &deployment{binary: *binary, options: options{context: *tokens, plugIn: *plugIn, unnamed: *unnamed}}
	err := run(ctx, d, *folder, flag.Arg(0), flag.Args()[1:])
	cancel()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "clients: %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

func run(ctx context.Context, d *deployment, folder, name string, command []string) (err error) {
	if d.log, err = os.Create(folder + "/" + name + ".log"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop(), d.log.Close()) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	if err := runSuite(ctx, command, d.environment()); err != nil {
		return fmt.Errorf("%w; the program's log is %s", err, d.log.Name())
	}
	summary, err := d.settle(ctx)
	if err == nil && d.unnamed {
		var turns []turnRecord
		if turns, err = d.records(ctx); err == nil {
			summary, err = hitFromTheSecondOn(turns)
		}
	}
	if err != nil {
		return fmt.Errorf("%w; the program's log is %s", err, d.log.Name())
	}
	fmt.Printf("clients: %s: %s\n", name, summary)
	return nil
}

// runSuite runs the suite's command in a group of its own: test runners start processes too.
func runSuite(ctx context.Context, command, environment []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the suite failed: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}
