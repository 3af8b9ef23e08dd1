package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
)

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
