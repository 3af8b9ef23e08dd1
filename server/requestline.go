package server

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"carryover/server/record"
	"carryover/server/request"
)

// segments are the words in paths of OpenAI's, Anthropic's, vLLM's and Ollama's APIs. Any other segment may be private: an id, or a
// credential in the wrong place.
//
//nolint:gochecknoglobals // immutable
var segments = strings.Fields(`api assistants audio batches chat classify complete completions conversations count_tokens detokenize edits embed
	embeddings engines favicon.ico files fine_tuning generate generations health healthz images input_tokens inference invocations is_sleeping
	load messages metrics models moderations openai ping pooling props ps rerank reset_prefix_cache responses robots.txt score server_info
	show sleep speech tags tokenize transcriptions translations uploads v1 v1beta v2 vector_stores version wake_up readyz ready livez`)

const maxSegments = 8

func shownPath(path string) string {
	var b strings.Builder
	rest, more := strings.TrimPrefix(path, "/"), true
	for n := 0; more; n++ {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		b.WriteByte('/')
		if n == maxSegments || segment != "" && !slices.Contains(segments, segment) {
			segment = "…"
		}
		b.WriteString(segment)
		if n == maxSegments {
			break
		}
	}
	return b.String()
}

// methods are HTTP's.
//
//nolint:gochecknoglobals // immutable
var methods = strings.Fields("GET HEAD POST PUT PATCH DELETE CONNECT OPTIONS TRACE")

// requestLines writes a line at debug level for each request that is not a turn: for a path that is not served, with a method that is
// not allowed, or for models or health. It shows the known words of the path, and no query.
type requestLines struct {
	logger *slog.Logger
	names  request.ClientNames
}

func (l *requestLines) write(r *http.Request, status int, took time.Duration) {
	if !l.logger.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	method := r.Method
	if !slices.Contains(methods, method) {
		method = "other"
	}
	l.logger.Debug("request", "status", status, "method", method, "path", shownPath(r.URL.EscapedPath()),
		"client", l.names.Address(r), "duration_ms", record.Milliseconds(took))
}

func (l *requestLines) around(handler echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		began, status := time.Now(), record.StatusClientGone // the status if the handler panics
		defer func() { l.write(c.Request(), status, time.Since(began)) }()
		if err = handler(c); err != nil && !c.Response().Committed {
			status = http.StatusInternalServerError
			return err
		}
		status = c.Response().Status
		return err
	}
}
