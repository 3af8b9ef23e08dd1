package admin_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/server/admin"
)

func TestLogLevel(t *testing.T) {
	type row struct {
		before       slog.Level
		method, body string
		status       int
		after        slog.Level
		says         string // level, or code of the error
		line         string
	}
	rows := []row{
		{slog.LevelWarn, "GET", "", 200, slog.LevelWarn, "warn", ""},
		{slog.LevelInfo, "PUT", `{"level":"debug"}`, 200, slog.LevelDebug, "debug", "from=INFO to=DEBUG"},
		{slog.LevelInfo, "PUT", ` {"level": "error"} `, 200, slog.LevelError, "error", "from=INFO to=ERROR"},
		{slog.LevelError, "PUT", `{"level":"info"}`, 200, slog.LevelInfo, "info", "from=ERROR to=INFO"}, // at the level that is the less quiet
		{slog.LevelInfo, "POST", `{"level":"debug"}`, 405, slog.LevelInfo, "method_not_allowed", ""},
	}
	for _, body := range []string{
		`{"level":"loud"}`, `{"level":"INFO+2"}`, `{"level":4}`, `{"level":"warn","level":"debug"}`, `{"Level":"debug"}`, `{"level":"debug","for":"1h"}`,
		`debug`, `null`, ``, `{"level":"` + strings.Repeat("x", 70<<10) + `"}`,
	} {
		rows = append(rows, row{slog.LevelInfo, "PUT", body, 400, slog.LevelInfo, "invalid_level", ""})
	}
	for _, row := range rows {
		t.Run(row.method+" "+row.body[:min(20, len(row.body))], func(t *testing.T) {
			deps, _ := newDeps(t)
			level, log := &slog.LevelVar{}, &bytes.Buffer{}
			level.Set(row.before)
			deps.LogLevel, deps.Logger = level, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))
			status, body := ask(t, admin.New(deps), row.method, "/admin/log-level", row.body)
			if says := gjson.Get(body, "level").String() + gjson.Get(body, "error.code").String(); status != row.status || says != row.says || level.Level() != row.after {
				t.Errorf("got %d %s, and level %v; want %d %s, and %v", status, body, level.Level(), row.status, row.says, row.after)
			}
			if got := log.String(); !strings.Contains(got, row.line) || (row.line == "") != (got == "") {
				t.Errorf("logged %q, want %q", got, row.line)
			}
		})
	}
}

func TestProfiles_AreForOperators(t *testing.T) {
	deps, _ := newDeps(t)
	deps.Token = "secret"
	h := admin.New(deps)
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }
	for _, name := range []string{"profile?seconds=1", "heap", "allocs", "goroutine"} {
		path := "/debug/pprof/" + name
		want(t, 401, "", h, "GET", path, "")
		want(t, 200, "\x1f\x8b", h, "GET", path, "", bearer) // profiles are gzip streams
	}
	for _, name := range []string{"cmdline", "trace", "symbol", "block", "x"} {
		want(t, 404, "", h, "GET", "/debug/pprof/"+name, "", bearer)
	}
}
