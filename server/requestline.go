package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// segments are the words of paths that clients of OpenAI's, Anthropic's, vLLM's and Ollama's APIs ask for. Others may be anything: an id, a
// credential in the wrong place.
//
//nolint:gochecknoglobals // immutable
var segments = wordSet(`api assistants audio batches chat classify complete completions conversations count_tokens detokenize edits embed
	embeddings engines favicon.ico files fine_tuning generate generations health healthz images input_tokens inference invocations is_sleeping
	load messages metrics models moderations openai ping pooling props ps rerank reset_prefix_cache responses robots.txt score server_info
	show sleep speech tags tokenize transcriptions translations uploads v1 v1beta v2 vector_stores version wake_up readyz ready livez`)

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(text) {
		set[word] = true
	}
	return set
}

// maxSegments bounds the path that a line shows.
const maxSegments = 8

// shownPath is a path without what a client may have made up.
func shownPath(path string) string {
	var b strings.Builder
	rest, more := strings.TrimPrefix(path, "/"), true
	for n := 0; more; n++ {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		b.WriteByte('/')
		if n == maxSegments || segment != "" && !segments[segment] {
			segment = "…"
		}
		b.WriteString(segment)
		if n == maxSegments {
			break
		}
	}
	return b.String()
}

// shownMethod is the method, if HTTP knows it.
func shownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}

// requestLines writes a line at debug for each request that is no turn: for a path that is not served, a method that is not allowed, a
// question for models or health. Of a path it shows the words that APIs have, and no query.
type requestLines struct {
	logger *slog.Logger
	names  clientNames
}

func (l *requestLines) write(r *http.Request, status int, took time.Duration) {
	if !l.logger.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	l.logger.Debug("request", "status", status, "method", shownMethod(r.Method), "path", shownPath(r.URL.EscapedPath()),
		"client", l.names.address(r), "duration_ms", Milliseconds(took))
}

// around has a handler write the line of each request.
func (l *requestLines) around(handler echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		if !l.logger.Enabled(c.Request().Context(), slog.LevelDebug) {
			return handler(c)
		}
		began, status := time.Now(), statusClientGone // if it ends in a panic
		defer func() { l.write(c.Request(), status, time.Since(began)) }()
		writer := &statusWriter{ResponseWriter: c.Response().Writer, status: http.StatusOK}
		c.Response().Writer = writer // some handlers write to it directly
		if err = handler(c); err != nil && !c.Response().Committed {
			status = http.StatusInternalServerError
			return err
		}
		status = writer.status
		return err
	}
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
