package vllmsim

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
)

// Paths of vLLM's HTTP server.
const (
	pathChat        = "/v1/chat/completions"
	pathCompletions = "/v1/completions"
	pathMetrics     = "/metrics"
)

// maxBody bounds the body of a request.
const maxBody = 64 << 20

// errConnectionGone ends a request whose connection is closed or has to be closed.
var errConnectionGone = errors.New("connection gone")

// ServeHTTP answers as vLLM's API server does.
func (i *Instance) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !i.handlers.Enter() {
		kill(w)
		return
	}
	defer i.handlers.Leave()
	w.Header().Set("Server", "uvicorn")
	err := i.serve(w, req)
	switch {
	case err == nil:
	case errors.Is(err, errConnectionGone) || req.Context().Err() != nil:
		kill(w)
	default:
		api := asAPIError(err)
		// The status line is already out only if the connection failed in the middle, and then nobody reads this.
		_ = writeJSON(w, api.status, i.errorBody(api, req.URL.Path))
	}
}

func (i *Instance) serve(w http.ResponseWriter, req *http.Request) error {
	if strings.HasPrefix(req.URL.Path, "/_sim/") {
		return i.serveControl(w, req)
	}
	i.requests.Add(1)
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		return errConnectionGone
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	i.record.add(req, body)
	if i.config().RequestIDHeaders {
		id := req.Header.Get("X-Request-Id")
		if id == "" {
			id = randomHex(16)
			req.Header.Set("X-Request-Id", id)
		}
		w.Header().Set("X-Request-Id", id)
	}
	f := i.faults.Pick(faultableOf(req.URL.Path, body))
	if f != nil {
		w = &faultWriter{ResponseWriter: w, fault: f, clock: i.clock, req: req}
	}
	if done, err := i.faulty(f, w, req, body); done {
		return err
	}
	if i.unauthorized(req) {
		return writeJSON(w, http.StatusUnauthorized, map[string]string{"error": "Unauthorized"})
	}
	if done, err := i.paused(w, req, body); done {
		return err
	}
	if done, err := i.pauses(w, req); done {
		return err
	}
	return i.route(w, req, f)
}

func (i *Instance) route(w http.ResponseWriter, req *http.Request, f *fault.Active) error {
	switch req.Method + " " + req.URL.Path {
	case "POST " + pathChat, "POST " + pathCompletions:
		return i.serveCompletion(w, req, f)
	case "POST " + pathChat + "/render", "POST " + pathCompletions + "/render":
		return i.serveRender(w, req)
	case "POST " + pathMessages:
		return i.serveMessages(w, req, f)
	case "POST " + pathMessagesCount:
		return i.serveCount(w, req)
	case "POST " + pathMessagesRender:
		return i.serveMessagesRender(w, req)
	case "POST " + pathResponses:
		return i.serveResponses(w, req, f)
	case "POST " + pathResponsesRender:
		return i.serveResponsesRender(w, req)
	case "POST /tokenize":
		return i.serveTokenize(w, req)
	case "GET /v1/models":
		return writeJSON(w, http.StatusOK, i.models())
	case "GET /version":
		return writeJSON(w, http.StatusOK, map[string]string{"version": i.config().Version})
	case "GET /health", "GET /ping", "POST /ping":
		return i.serveHealth(w)
	case "POST /reset_prefix_cache":
		return i.serveReset(w)
	case "GET " + pathMetrics:
		return i.serveMetrics(w, f)
	}
	if id, ok := storedResponse(req); ok {
		return unknownResponse(id)
	}
	if i.knownPath(req.URL.Path) {
		return writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"detail": "Method Not Allowed"})
	}
	return writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
}

func (i *Instance) knownPath(path string) bool {
	switch path {
	case pathChat, pathCompletions, pathChat + "/render", pathCompletions + "/render", "/tokenize", "/v1/models", "/version",
		"/health", "/ping", "/reset_prefix_cache", pathMetrics, pathPause, pathResume, pathIsPaused, pathSleep, pathWakeUp, pathIsSleeping, pathMessages, pathMessagesCount, pathMessagesRender, pathResponses:
		return true
	default:
		_, _, stored := storedPath(path)
		return stored
	}
}

// unauthorized checks the bearer token, which protects only /v1.
func (i *Instance) unauthorized(req *http.Request) bool {
	key := i.config().APIKey
	return key != "" && strings.HasPrefix(req.URL.Path, "/v1") && req.Header.Get("Authorization") != "Bearer "+key
}

func (i *Instance) serveHealth(w http.ResponseWriter) error {
	status := http.StatusOK
	for _, e := range i.engines() {
		if e.Dead() {
			status = http.StatusServiceUnavailable
		}
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
	return nil
}

// engineFor picks the data-parallel rank: the one that the request names, or each in turn. A rank that is not a number is ignored.
func (i *Instance) engineFor(req *http.Request) (*engine.Engine, error) {
	engines := i.engines()
	rank, err := strconv.Atoi(req.Header.Get("X-Data-Parallel-Rank"))
	if err != nil {
		return engines[int(i.turn.Add(1)-1)%len(engines)], nil
	}
	if rank < 0 || rank >= len(engines) {
		return nil, badRequest("", "data_parallel_rank %d is out of range [0, %d).", rank, len(engines))
	}
	return engines[rank], nil
}

// readRequest parses a JSON body.
func readRequest(req *http.Request) (*apiRequest, error) {
	body, err := jsonBody(req)
	if err != nil {
		return nil, err
	}
	return parseBody(body)
}

// jsonBody reads a body with the content type application/json.
func jsonBody(req *http.Request) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, invalidBody("", "Unsupported Media Type: Only 'application/json' is allowed")
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return body, nil
}

// wantsStream reports whether a body asks for a stream; the body need not be valid.
func wantsStream(body []byte) bool {
	var r struct {
		Stream bool `json:"stream"`
	}
	return json.Unmarshal(body, &r) == nil && r.Stream
}

// requestID returns the id of a completion for the client: from the header, from the body, or a random one.
func requestID(req *http.Request, r *apiRequest) string {
	if id := req.Header.Get("X-Request-Id"); id != "" {
		return id
	}
	if r.RequestID != "" {
		return r.RequestID
	}
	return randomHex(16)
}

// engineID returns the id of one child inside the engine. It ends in random digits, so that equal request ids cannot collide
// (#27987).
func (c *completion) engineID(prompt, child int) string {
	id := c.id
	if !c.chat {
		id += "-" + strconv.Itoa(prompt)
	}
	if c.request.children() > 1 {
		id = strconv.Itoa(child) + "_" + id
	}
	return id + c.inside + "-" + randomHex(4)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand never fails
	return hex.EncodeToString(b)
}

// marshal writes compact JSON without HTML escapes, as vLLM does.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// rawJSON is marshal for values that always encode.
func rawJSON(v any) json.RawMessage {
	raw, err := marshal(v)
	if err != nil {
		return jsonNull
	}
	return raw
}

func rawIDs(ids []int32) json.RawMessage {
	raw := make([]byte, 0, 6*len(ids)+2)
	raw = append(raw, '[')
	for i, id := range ids {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = strconv.AppendInt(raw, int64(id), 10)
	}
	return append(raw, ']')
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := marshal(v)
	if err != nil {
		return err
	}
	if f, ok := w.(*faultWriter); ok {
		switch f.fault.Kind {
		case fault.LostAnswer:
			return errConnectionGone
		case fault.LostStatus:
			return &apiError{status: f.fault.Status, kind: errorType(f.fault.Status), message: "simulated fault"}
		}
		body = f.mangle(body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return errConnectionGone
	}
	return nil
}
