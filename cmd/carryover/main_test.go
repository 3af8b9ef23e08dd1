package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// hangVariable makes the test binary a process that ignores the end of its context, for the signal test.
const hangVariable = "CARRYOVER_TEST_HANG"

// programVariable makes the test binary the program itself, with its arguments and no environment, for tests that stop and
// continue the process.
const programVariable = "CARRYOVER_TEST_PROGRAM"

// unprovenVariable makes the test binary the program with a proof that proves nothing.
const unprovenVariable = "CARRYOVER_TEST_UNPROVEN"

func TestMain(m *testing.M) {
	if os.Getenv(hangVariable) != "" {
		os.Exit(untilSignal(hang))
	}
	if os.Getenv(programVariable) != "" {
		os.Exit(untilSignal(func(ctx context.Context) int { return run(ctx, os.Args[1:], nil, os.Stdout, os.Stderr) }))
	}
	if os.Getenv(unprovenVariable) != "" {
		os.Exit(untilSignal(func(ctx context.Context) int {
			return runUnproven(ctx, os.Args[1:], withoutTestNames(os.Environ()), os.Stdout, os.Stderr)
		}))
	}
	goleak.VerifyTestMain(m)
}

// withoutTestNames leaves out the variables of tests and of scripts/vllm-cpu, which the program refuses as unknown.
func withoutTestNames(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		return strings.HasPrefix(variable, "CARRYOVER_TEST_") || strings.HasPrefix(variable, "CARRYOVER_VLLM_")
	})
}

func hang(ctx context.Context) int {
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("draining")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return exitOK
}

func TestUntilSignal_SecondSignalEndsAtOnce(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), hangVariable+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for _, step := range []struct {
		line   string
		signal syscall.Signal
	}{{"ready", syscall.SIGTERM}, {"draining", syscall.SIGINT}} {
		if !lines.Scan() || lines.Text() != step.line {
			t.Fatalf("child says %q, want %q (%v)", lines.Text(), step.line, lines.Err())
		}
		if err := cmd.Process.Signal(step.signal); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("child ended by itself, want it ended by the second signal")
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("child ended with %v, want interrupt", cmd.ProcessState)
	}
}

func TestUntilSignal_ReturnsExitCode(t *testing.T) {
	if got := untilSignal(func(context.Context) int { return 7 }); got != 7 {
		t.Errorf("exit code %d, want 7", got)
	}
}
