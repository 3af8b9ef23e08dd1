package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"carryover/cmd/carryover/config"
)

// lineOf is one line of a format, without its time.
func lineOf(t *testing.T, cfg config.LogConfig, write func(*slog.Logger)) string {
	t.Helper()
	var b bytes.Buffer
	logger, _ := NewLogger(cfg, &b)
	write(logger)
	line := regexp.MustCompile(`^(\x1b\[2m)?(time=\S+ |\d\d:\d\d:\d\d\.\d{3}(\x1b\[0m)? |\{"time":"[^"]*",)`).ReplaceAllString(b.String(), "")
	if line == b.String() && line != "" {
		t.Errorf("no time in %q", line)
	}
	return line
}

func TestLog_Formats(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	for name, row := range map[string]struct {
		write               func(*slog.Logger)
		text, json, console string
	}{
		"members": {
			func(l *slog.Logger) { l.Info("turn", "outcome", "hit", "tokens_read", 200, "ttft_ms", 4.5) },
			"level=INFO msg=turn outcome=hit tokens_read=200 ttft_ms=4.5\n",
			`"level":"INFO","msg":"turn","outcome":"hit","tokens_read":200,"ttft_ms":4.5}` + "\n",
			"INFO  turn outcome=hit tokens_read=200 ttft_ms=4.5\n",
		},
		"empty ones": {
			func(l *slog.Logger) { l.With("engine", "", "role", "prefill").Warn("a warning", "why", "", "n", 0) },
			"level=WARN msg=\"a warning\" role=prefill n=0\n",
			`"level":"WARN","msg":"a warning","engine":"","role":"prefill","why":"","n":0}` + "\n",
			"WARN  a warning role=prefill n=0\n",
		},
		"durations": {
			func(l *slog.Logger) { l.With("every", 2*time.Second).Error("late", "after", 1500*time.Microsecond) },
			"level=ERROR msg=late every=2s after=1.5ms\n",
			`"level":"ERROR","msg":"late","every_ms":2000,"after_ms":1.5}` + "\n",
			"ERROR late every=2s after=1.5ms\n",
		},
		"values that need quotes": {
			func(l *slog.Logger) { l.Info("x", "error", errors.New("no \"way\" out"), "a", "b=c", "e", "\x1b[2J") },
			"level=INFO msg=x error=\"no \\\"way\\\" out\" a=\"b=c\" e=\"\\x1b[2J\"\n",
			`"level":"INFO","msg":"x","error":"no \"way\" out","a":"b=c","e":"\u001b[2J"}` + "\n",
			"INFO  x error=\"no \\\"way\\\" out\" a=\"b=c\" e=\"\\x1b[2J\"\n",
		},
		"groups": {
			func(l *slog.Logger) { l.WithGroup("g").Info("x", "a", 1, slog.Group("h", "b", 2)) },
			"level=INFO msg=x g.a=1 g.h.b=2\n",
			`"level":"INFO","msg":"x","g":{"a":1,"h":{"b":2}}}` + "\n",
			"INFO  x g.a=1 g.h.b=2\n",
		},
		"too little": {func(l *slog.Logger) { l.Debug("x") }, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for format, want := range map[string]string{config.LogText: row.text, config.LogJSON: row.json, config.LogConsole: row.console, config.LogAuto: row.text} {
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

func TestConsole_ColoursUnlessAskedNotTo(t *testing.T) {
	for name, row := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"a terminal":          {nil, true},
		"NO_COLOR":            {map[string]string{"NO_COLOR": "1"}, false},
		"NO_COLOR, but empty": {map[string]string{"NO_COLOR": ""}, true},
		"a dumb one":          {map[string]string{"TERM": "dumb"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			t.Setenv("NO_COLOR", "")
			for key, value := range row.env {
				t.Setenv(key, value)
			}
			line := lineOf(t, config.LogConfig{Format: config.LogConsole, Level: "info"}, func(l *slog.Logger) {
				l.Warn("turn", "outcome", "miss", "error", "x")
			})
			if got := strings.Contains(line, "\x1b[33m"); got != row.want || strings.Contains(line, "\x1b[") != row.want {
				t.Errorf("colours: %v, want %v in %q", got, row.want, line)
			}
			plain := regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(line, "")
			if !strings.HasSuffix(plain, "WARN  turn outcome=miss error=x\n") {
				t.Errorf("got %q", plain)
			}
		})
	}
}

// terminal opens a pseudoterminal, and returns the side of the program and the side of the person.
func terminal(t *testing.T) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return program, person
}

func TestLog_TheConsoleIsChosenOnATerminalWhereNothingIsSet(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	tty, _ := terminal(t)
	for name, row := range map[string]struct {
		to           *os.File
		format, want string
	}{
		"auto on a terminal": {tty, config.LogAuto, config.LogConsole},
		"auto in a file":     {file, config.LogAuto, config.LogText},
		"text on a terminal": {tty, config.LogText, config.LogText},
		"JSON on a terminal": {tty, config.LogJSON, config.LogJSON},
		"console in a file":  {file, config.LogConsole, config.LogConsole},
	} {
		if got := logFormat(row.format, row.to); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
	if cfg := config.Default(); cfg.Log.Format != config.LogAuto {
		t.Errorf("the default is %q", cfg.Log.Format)
	}
}

func TestLog_AReaderSeesALineOnATerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	program, person := terminal(t)
	logger, _ := NewLogger(config.LogConfig{Format: config.LogAuto, Level: "info"}, program)
	logger.Info("serving", "address", "127.0.0.1:8000")
	line := make([]byte, 200)
	n, err := person.Read(line)
	if want := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} INFO  serving address=127\.0\.0\.1:8000\r\n$`); err != nil || !want.Match(line[:n]) {
		t.Errorf("got %q, %v", line[:n], err)
	}
}
