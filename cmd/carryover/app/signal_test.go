package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// hangVariable makes the test binary a process that ignores the end of its context, for the signal test.
const hangVariable = "CARRYOVER_TEST_HANG"

func TestMain(m *testing.M) {
	if os.Getenv(hangVariable) != "" {
		os.Exit(UntilSignal(hang))
	}
	goleak.VerifyTestMain(m)
}

func hang(ctx context.Context) int {
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("draining")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func TestUntilSignal_SecondSignalEndsAtOnce(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), hangVariable+"=1")
	stdin, err := cmd.StdinPipe()
	must(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	for _, step := range []struct {
		line   string
		signal syscall.Signal
	}{{"ready", syscall.SIGTERM}, {"draining", syscall.SIGINT}} {
		if !lines.Scan() || lines.Text() != step.line {
			t.Fatalf("child says %q, want %q (%v)", lines.Text(), step.line, lines.Err())
		}
		must(t, cmd.Process.Signal(step.signal))
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("child ended by itself, want it ended by the second signal")
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("child ended with %v, want interrupt", cmd.ProcessState)
	}
}

func TestUntilSignal_ReturnsExitCode(t *testing.T) {
	if got := UntilSignal(func(context.Context) int { return 7 }); got != 7 {
		t.Errorf("exit code %d, want 7", got)
	}
}
