package admin_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/server/admin"
)

func TestLogLevel(t *testing.T) {
	for name, row := range map[string]struct {
		before       slog.Level
		method, body string
		status       int
		after        slog.Level
		says         string // level, or code of the error
		line         string
	}{
		"what it is":       {slog.LevelWarn, "GET", "", 200, slog.LevelWarn, "warn", ""},
		"more":             {slog.LevelInfo, "PUT", `{"level":"debug"}`, 200, slog.LevelDebug, "debug", "from=INFO to=DEBUG"},
		"less":             {slog.LevelInfo, "PUT", ` {"level": "error"} `, 200, slog.LevelError, "error", "from=INFO to=ERROR"},
		"less, from quiet": {slog.LevelError, "PUT", `{"level":"info"}`, 200, slog.LevelInfo, "info", "from=ERROR to=INFO"},
		"no level":         {slog.LevelInfo, "PUT", `{"level":"loud"}`, 400, slog.LevelInfo, "invalid_level", ""},
		"slog's own words": {slog.LevelInfo, "PUT", `{"level":"INFO+2"}`, 400, slog.LevelInfo, "invalid_level", ""},
		"a number":         {slog.LevelInfo, "PUT", `{"level":4}`, 400, slog.LevelInfo, "invalid_level", ""},
		"twice":            {slog.LevelInfo, "PUT", `{"level":"warn","level":"debug"}`, 400, slog.LevelInfo, "invalid_level", ""},
		"another case":     {slog.LevelInfo, "PUT", `{"Level":"debug"}`, 400, slog.LevelInfo, "invalid_level", ""},
		"another member":   {slog.LevelInfo, "PUT", `{"level":"debug","for":"1h"}`, 400, slog.LevelInfo, "invalid_level", ""},
		"no JSON":          {slog.LevelInfo, "PUT", `debug`, 400, slog.LevelInfo, "invalid_level", ""},
		"null":             {slog.LevelInfo, "PUT", `null`, 400, slog.LevelInfo, "invalid_level", ""},
		"nothing":          {slog.LevelInfo, "PUT", ``, 400, slog.LevelInfo, "invalid_level", ""},
		"too much":         {slog.LevelInfo, "PUT", `{"level":"` + strings.Repeat("x", 70<<10) + `"}`, 400, slog.LevelInfo, "invalid_level", ""},
		"another method":   {slog.LevelInfo, "POST", `{"level":"debug"}`, 405, slog.LevelInfo, "method_not_allowed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			deps, _ := newDeps(t)
			level, log := &slog.LevelVar{}, &bytes.Buffer{}
			level.Set(row.before)
			deps.LogLevel, deps.Logger = level, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))
			status, body := ask(t, admin.New(deps), row.method, "/admin/log-level", row.body, nil)
			if says := gjson.Get(body, "level").String() + gjson.Get(body, "error.code").String(); status != row.status || says != row.says || level.Level() != row.after {
				t.Errorf("got %d %s, and level %v; want %d %s, and %v", status, body, level.Level(), row.status, row.says, row.after)
			}
			if got := log.String(); !strings.Contains(got, row.line) || (row.line == "") != (got == "") {
				t.Errorf("logged %q, want %q", got, row.line)
			}
		})
	}
}
