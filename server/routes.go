package server

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"carryover/server/apierror"
	"carryover/server/request"
	"carryover/server/suggest"
	"carryover/server/turn"
	"carryover/upstream/body"
)

// routes builds the table of all served paths. A path must match exactly, in its escaped form: engines have endpoints such as /sleep and
// /reset_prefix_cache that no spelling of a path may reach, and vLLM's --api-key does not guard them.
func (s *Server) routes(asked *questions) http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = onError
	e.IPExtractor = echo.ExtractIPDirect()
	served := &endpoints{methods: map[string][]string{}}
	lines := &requestLines{s.cfg.Logger, request.ClientNames{Mode: s.cfg.LogClients, Secret: s.deps.Secret}}
	serve := func(method, path string, handler echo.HandlerFunc) { // a turn writes its own line
		e.Add(method, path, handler)
		served.add(method, path)
	}
	add := func(method, path string, handler echo.HandlerFunc) { serve(method, path, lines.around(handler)) }
	turn := func(api body.API) echo.HandlerFunc {
		return func(c echo.Context) error {
			s.turns.Serve(c.Response().Writer, c.Request(), api) // net/http's writer, because echo's Flush hides errors
			return nil
		}
	}
	serve(http.MethodPost, "/v1/chat/completions", turn(body.Chat))
	serve(http.MethodPost, "/v1/completions", turn(body.Text))
	serve(http.MethodPost, body.Messages.Path(), turn(body.Messages))
	add(http.MethodPost, body.Messages.Path()+"/count_tokens", asked.handleCountTokens)
	serve(http.MethodPost, body.Responses.Path(), turn(body.Responses))
	add(http.MethodGet, "/v1/models", asked.handleModels)
	s.health.serve(add)
	add(http.MethodGet, "/version", func(c echo.Context) error { return c.JSON(http.StatusOK, map[string]any{"version": s.cfg.Version}) })
	welcome := served.welcome(s.cfg.Version)
	add(http.MethodGet, "/", welcome)
	add(http.MethodHead, "/", welcome) // Claude Code sends it to see whether a server answers
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := s.exact(w, r, served); status != 0 {
			lines.write(r, status, 0)
			return
		}
		e.ServeHTTP(w, r)
	})
}

// HealthHandler answers GET /health, /healthz and /readyz as the server does. It is for a second listener, whose connections clients can't
// exhaust.
func (s *Server) HealthHandler() http.Handler {
	e := echo.New()
	s.health.serve(func(method, path string, handler echo.HandlerFunc) { e.Add(method, path, handler) })
	return e
}

// exact sets a request's time limits, and answers it with an error unless its path and method are served. It returns the status of that
// error, else 0. It runs before echo, because echo composes its middleware anew for each request.
func (s *Server) exact(w http.ResponseWriter, r *http.Request, served *endpoints) (refusal int) {
	// net/http flushes the rest of an answer after its handler has returned, and that write must have a limit too. A turn's first writes
	// are under this limit; commitWriter.bound sets a new one for later writes.
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(turn.WriteLimit(s.cfg.ClientWriteTimeout)))
	if r.ContentLength != 0 {
		// net/http waits for the body of a request that is refused unread. A client that never sends it would hold its connection for ever.
		_ = control.SetReadDeadline(time.Now().Add(s.cfg.ClientBodyTimeout))
	}
	if len(r.TransferEncoding) > 0 {
		// A request with both a Content-Length and a Transfer-Encoding must be the last on its connection (RFC 9112, 6.1), and net/http has
		// removed the former.
		w.Header().Set("Connection", "close")
	} else if r.ProtoAtLeast(1, 1) && !r.Close && !s.Slots.Closed() {
		w.Header().Set("Keep-Alive", announced)
	}
	methods, known := served.methods[r.URL.EscapedPath()]
	known = known && r.URL.Host == "" && !strings.HasPrefix(r.RequestURI, "//")
	allowed := known && slices.Contains(methods, r.Method)
	if !allowed || r.Method != http.MethodPost { // turns name themselves (package record)
		w.Header().Set("X-Request-Id", requestID(r))
	}
	api := apiAt(r.URL.EscapedPath())
	var e *apierror.Error
	switch {
	case !known && api == body.Responses:
		api, e = body.Chat, apierror.BadRequest("", "unsupported", "Responses are not stored. Send the whole history as input to POST "+api.Path()+".")
	case !known:
		e = served.unknown(r.URL.EscapedPath())
	case !allowed:
		w.Header().Set("Allow", strings.Join(methods, ", "))
		e = apierror.Refused(http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed.")
	default:
		return 0
	}
	e.Write(w, api)
	return e.Status
}

// apiAt returns the API whose error shape applies to a path: of the API with this path or one above it, else chat.
func apiAt(path string) body.API {
	for _, api := range []body.API{body.Messages, body.Responses} {
		if below, ok := strings.CutPrefix(path, api.Path()); ok && (below == "" || below[0] == '/') {
			return api
		}
	}
	return body.Chat
}

func onError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	status := http.StatusInternalServerError
	var he *echo.HTTPError
	if errors.As(err, &he) {
		status = he.Code
	}
	apierror.Refused(status, "internal", http.StatusText(status)).Write(c.Response(), body.Chat)
}

type endpoints struct {
	methods map[string][]string // HTTP methods by path
	listed  []string            // "METHOD path", in the order in which they were added
}

func (e *endpoints) add(method, path string) {
	e.methods[path] = append(e.methods[path], method)
	if path != "/" {
		e.listed = append(e.listed, method+" "+path)
	}
}

const (
	whatThisIs = "Multi-turn proxy for disaggregated (prefill and decode) vLLM"
	// forOperators does not give the address of the listener: clients need not know it.
	forOperators = "The page for operators, metrics and recent turns are at the admin listener (--admin-listen)."
)

// welcome names the program and its endpoints: in text for browsers and other clients that ask for it, else in JSON.
func (e *endpoints) welcome(version string) echo.HandlerFunc {
	type answer struct {
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Version     string   `json:"version"`
		Endpoints   []string `json:"endpoints"`
		Operators   string   `json:"operators"`
	}
	return func(c echo.Context) error {
		c.Response().Header().Set("Vary", "Accept")
		if !wantsText(c.Request().Header.Values("Accept")) {
			body, err := json.Marshal(answer{"carryover", whatThisIs + " (Carryover)", version, e.listed, forOperators})
			if err != nil { // only strings in there
				return err
			}
			return c.Blob(http.StatusOK, "application/json", append(body, '\n'))
		}
		text := "Carryover " + version + "\n" + whatThisIs + "\n\nServed here:\n  " + strings.Join(e.listed, "\n  ") + "\n\n" + forOperators + "\n"
		return c.Blob(http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	}
}

// wantsText reports whether an Accept header names a kind of text before JSON. Browsers put text/html first. Of weights only zero counts,
// which forbids the type (RFC 9110, 12.5.1).
func wantsText(accept []string) bool {
	for _, header := range accept {
		for item := range strings.SplitSeq(header, ",") {
			media, parameters, err := mime.ParseMediaType(item)
			if err != nil || strings.Trim(parameters["q"], "0.") == "" && parameters["q"] != "" {
				continue
			}
			switch media {
			case "text/html", "text/plain", "text/*":
				return true
			case "application/json":
				return false
			}
		}
	}
	return false
}

func (e *endpoints) unknown(path string) *apierror.Error {
	message := "Unknown endpoint."
	if meant := e.meant(path); meant != "" {
		message += " Did you mean " + meant + "?"
	}
	message += " Served are " + strings.Join(e.listed, ", ") + "."
	if path == "/metrics" || path == "/admin" || strings.HasPrefix(path, "/admin/") {
		message += " " + forOperators
	}
	return apierror.Refused(http.StatusNotFound, "not_found", message)
}

// meant returns the endpoint that a wrong path may stand for. The path has the endpoint's end, for example because a base URL lacks its /v1
// or has it twice, or it is spelled nearly the same.
func (e *endpoints) meant(path string) string {
	parts := slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "" })
	path = "/" + strings.Join(parts, "/")
	best, longest := "", 0
	paths := make([]string, len(e.listed))
	for i, listed := range e.listed {
		_, paths[i], _ = strings.Cut(listed, " ")
		if tail := strings.TrimPrefix(paths[i], "/v1"); len(tail) > longest && strings.HasSuffix(path, tail) {
			best, longest = listed, len(tail)
		}
	}
	if near := suggest.Nearest(path, paths); best == "" && near != "" {
		best = e.listed[slices.Index(paths, near)]
	}
	return best
}
