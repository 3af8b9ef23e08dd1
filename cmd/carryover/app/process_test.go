package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carryover/cmd/carryover/config"
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

func TestGCPercent(t *testing.T) {
	const mb = 1 << 20
	for _, tc := range []struct {
		live, stacks uint64
		want         int
	}{
		{8 * mb, 0, 1500},
		{8 * mb, 8 * mb, 750},
		{64 * mb, 0, 100},
		{90 * mb, 0, 55}, // near the floor it is the pace of large heaps
		{128 * mb, 0, 55},
		{500 * mb, 9 * mb, 55},
		{1 * mb, 0, 3200}, // the least goal is the floor then
		{0, 0, 3200},      // before the first collection nothing is known to live
	} {
		if got := gcPercent(tc.live, tc.stacks); got != tc.want {
			t.Errorf("gcPercent(%d, %d) = %d, want %d", tc.live, tc.stacks, got, tc.want)
		}
	}
}

func TestPaceCollector_LeavesThePaceToTheOperator(t *testing.T) {
	before := debug.SetGCPercent(77)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "77")
	PaceCollector()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("GOGC is %d, want 77", got)
	}
}

// lineOf is one line of a format, without its time.
func lineOf(t *testing.T, cfg config.LogConfig, write func(*slog.Logger)) string {
	t.Helper()
	var b bytes.Buffer
	logger, _ := NewLogger(cfg, &b)
	write(logger)
	line := regexp.MustCompile(`^(time=\S+ |\{"time":"[^"]*",)`).ReplaceAllString(b.String(), "")
	if line == b.String() && line != "" {
		t.Errorf("no time in %q", line)
	}
	return line
}

func TestLog_Formats(t *testing.T) {
	for name, row := range map[string]struct {
		write      func(*slog.Logger)
		text, json string
	}{
		"members": {
			func(l *slog.Logger) { l.Info("turn", "outcome", "hit", "tokens_read", 200, "ttft_ms", 4.5) },
			"level=INFO msg=turn outcome=hit tokens_read=200 ttft_ms=4.5\n",
			`"level":"INFO","msg":"turn","outcome":"hit","tokens_read":200,"ttft_ms":4.5}` + "\n",
		},
		"empty ones": {
			func(l *slog.Logger) { l.With("engine", "", "role", "prefill").Warn("a warning", "why", "", "n", 0) },
			"level=WARN msg=\"a warning\" role=prefill n=0\n",
			`"level":"WARN","msg":"a warning","engine":"","role":"prefill","why":"","n":0}` + "\n",
		},
		"durations": {
			func(l *slog.Logger) { l.With("every", 2*time.Second).Error("late", "after", 1500*time.Microsecond) },
			"level=ERROR msg=late every=2s after=1.5ms\n",
			`"level":"ERROR","msg":"late","every_ms":2000,"after_ms":1.5}` + "\n",
		},
		"values that need quotes": {
			func(l *slog.Logger) { l.Info("x", "error", errors.New("no \"way\" out"), "a", "b=c", "e", "\x1b[2J") },
			"level=INFO msg=x error=\"no \\\"way\\\" out\" a=\"b=c\" e=\"\\x1b[2J\"\n",
			`"level":"INFO","msg":"x","error":"no \"way\" out","a":"b=c","e":"\u001b[2J"}` + "\n",
		},
		"groups": {
			func(l *slog.Logger) { l.WithGroup("g").Info("x", "a", 1, slog.Group("h", "b", 2)) },
			"level=INFO msg=x g.a=1 g.h.b=2\n",
			`"level":"INFO","msg":"x","g":{"a":1,"h":{"b":2}}}` + "\n",
		},
		"too little": {func(l *slog.Logger) { l.Debug("x") }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for format, want := range map[string]string{config.LogText: row.text, config.LogJSON: row.json} {
				if got := lineOf(t, config.LogConfig{Format: format, Level: "info"}, row.write); got != want {
					t.Errorf("%s:\n%swant\n%s", format, got, want)
				}
			}
		})
	}
}

// Every line is an object, whatever texts hold.
func TestLog_JSONIsReadByProgramsLineByLine(t *testing.T) {
	line := `{"time":"",` + lineOf(t, config.LogConfig{Format: config.LogJSON, Level: "info"}, func(l *slog.Logger) { l.Info("x\ny", "took", time.Minute, "k\n", "v\n") })
	var got map[string]any
	if err := json.Unmarshal([]byte(line), &got); err != nil || strings.Count(line, "\n") != 1 || got["took_ms"] != 60000.0 {
		t.Errorf("got %q, %v", line, err)
	}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
