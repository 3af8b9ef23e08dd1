package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// hostilePaths are spellings of what an engine must never be asked for, and of our own endpoints.
func hostilePaths() []string {
	admin := []string{
		"reset_prefix_cache", "reset_mm_cache", "sleep", "wake_up", "is_sleeping", "collective_rpc", "pause", "resume", "update_weights",
		"init_weights_update_engine", "abort_requests", "invocations", "ping", "load", "metrics", "server_info", "tokenize", "detokenize", "start_profile",
		"stop_profile", "scale_elastic_ep", "v1/load_lora_adapter", "v1/unload_lora_adapter", "v1/embeddings", "v1/messages/render", "v1/messages/batches", "v1/conversations",
		"v1/audio/transcriptions", "inference/v1/generate", "v1/chat/completions/render", "docs", "openapi.json", "debug/pprof/", "_sim/stats",
	}
	var paths []string
	for _, name := range admin {
		paths = append(paths,
			"/"+name, "//"+name, "/"+name+"/", "/v1/../"+name, "/v1/%2e%2e/"+name, "/v1/..%2f"+name, "/v1/chat/completions/../../../"+name,
			"/v1/chat/completions;/"+name, `/v1\..\`+name, "/%2f"+name, "/./"+name, "/v1/chat/completions%00/"+name)
	}
	for _, ours := range []string{"v1/chat/completions", "v1/completions", "v1/messages", "v1/messages/count_tokens", "v1/models", "healthz", "readyz", "health", "version"} {
		paths = append(paths,
			"//"+ours, "/"+ours+"/", "/"+ours+"//", "/"+strings.ToUpper(ours), "/./"+ours, "/x/../"+ours, "/"+ours+"%20", "/"+ours+";a=b", "/"+ours+"%00",
			"/"+ours+"%2f", "/%76"+ours, "/"+strings.Replace(ours, "e", "%65", 1), "http://engine/"+ours, "http://engine:8100/"+ours, "/"+ours+"#x")
	}
	return append(paths, "*", "/v1", "/v1/", "/v1/chat", "/favicon.ico")
}

func TestPaths_OnlyExactPathsAreServed(t *testing.T) {
	r := run(t, setup{})
	paths := hostilePaths()
	if len(paths) < 300 {
		t.Fatalf("got %d paths, want at least 300", len(paths))
	}
	// A client would clean them up, so they go over the wire as they are, all on one connection per method.
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "FOO"} {
		for at := 0; at < len(paths); at += 100 {
			batch := paths[at:min(at+100, len(paths))]
			var b strings.Builder
			for _, path := range batch {
				b.WriteString(wire(method+" "+path, "{}", "Content-Length: 2"))
			}
			conn := r.dial()
			go func() { _, _ = io.WriteString(conn, b.String()) }()
			statuses := r.answers(conn, method, len(batch))
			if len(statuses) != len(batch) {
				t.Errorf("%s: got %d answers, want %d", method, len(statuses), len(batch))
			}
			for i, status := range statuses {
				if path := batch[i]; status != 404 && !strings.Contains(path, `\`) || status == 200 {
					t.Errorf("%s %s: got %d, want 404", method, path, status)
				}
			}
		}
	}
	r.wantUntouched()
}

func TestPaths_MethodsAndQueries(t *testing.T) {
	r := newRig(t, setup{})
	allowed := map[string]string{
		chatPath: "POST", textPath: "POST", "/v1/responses": "POST", "/": "GET, HEAD", "/v1/models": "GET", "/health": "GET", "/healthz": "GET", "/readyz": "GET", "/version": "GET",
	}
	for path, method := range allowed {
		for _, wrong := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"} {
			if strings.Contains(method, wrong) {
				continue
			}
			p := r.do(t.Context(), wrong, path, strings.NewReader("{}"))
			if wrong != "HEAD" {
				r.wantError(p, 405, "method_not_allowed")
			}
			if p.status != 405 || p.header.Get("Allow") != method {
				t.Errorf("%s %s: got %d, Allow %q; want 405, %q", wrong, path, p.status, p.header.Get("Allow"), method)
			}
		}
	}
	r.wantUntouched()
	p := r.sendTo(chatPath+"?dp_rank=1&x=/sleep", ask("", true, "q"))
	r.wantOK(p, "miss;")
	for _, l := range append(r.prefill[0].seen(), r.decode[0].seen()...) {
		if l.uri != chatPath {
			t.Errorf("an engine was asked for %s", l.uri)
		}
	}
	r.wantError(r.get("/nope"), 404, "not_found")
}

func TestEndpoints_AnswerAsDocumented(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;")
	for path, want := range map[string]string{
		"/health":    `{"cached_conversations":1,"evicted_stale":0,"status":"ok"}`,
		"/healthz":   `{"status":"ok"}`,
		"/readyz":    `{"decode":1,"prefill":1,"status":"ready","store":"memory"}`,
		"/version":   `{"version":"test"}`,
		"/v1/models": `{"object":"list","data":[{"id":"m","max_model_len":4096}]}`,
	} {
		if p := r.get(path); p.status != http.StatusOK || strings.TrimSpace(p.body) != want || p.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: got %d %s, want %s", path, p.status, p.body, want)
		}
	}
	dead := newRig(t, setup{deadDecodes: -1})
	dead.wantError(dead.turn("c", 1, true), 503, "decode_unavailable")
	if p := dead.get("/readyz"); p.status != 503 || strings.TrimSpace(p.body) != `{"decode":0,"prefill":1,"status":"starting","store":"memory"}` {
		t.Errorf("got %d %s, want 503 before decode has answered", p.status, p.body)
	}
	bad := newRig(t, setup{})
	for _, e := range append(bad.prefill, bad.decode...) {
		e.models = raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx")
	}
	bad.wantError(bad.get("/v1/models"), 502, "prefill_failed")
}

// What stands below /v1/responses is asked of stored responses, of which there are none: 400, and nothing reaches an engine. HEAD / says that
// there is something.
func TestPaths_OfAgents(t *testing.T) {
	r := newRig(t, setup{})
	for _, row := range []struct{ method, path string }{
		{"GET", "/v1/responses/resp_1"}, {"DELETE", "/v1/responses/resp_1"}, {"POST", "/v1/responses/resp_1/cancel"}, {"GET", "/v1/responses/resp_1/input_items"},
		{"POST", "/v1/responses/compact"}, {"POST", "/v1/responses/render"}, {"POST", "/v1/responses/"},
	} {
		p := r.do(t.Context(), row.method, row.path, strings.NewReader("{}"), "Content-Type", "application/json")
		if r.wantError(p, http.StatusBadRequest, "unsupported"); !strings.Contains(p.body, "not stored") {
			t.Errorf("%s %s: %s", row.method, row.path, p.body)
		}
	}
	if p := r.do(t.Context(), http.MethodHead, "/", nil); p.status != http.StatusOK {
		t.Errorf("HEAD /: %d", p.status)
	}
	r.wantUntouched()
}

// Errors under /v1/messages have the shape of its clients.
func TestPaths_ErrorsOfMessages(t *testing.T) {
	r := newRig(t, setup{})
	for _, row := range []struct {
		method, path, contentType string
		status                    int
		kind                      string
	}{
		{"GET", "/v1/messages", "", 405, "invalid_request_error"},
		{"POST", "/v1/messages/batches", "application/json", 404, "not_found_error"},
		{"POST", "/v1/messages", "application/json", 400, "invalid_request_error"},
		{"POST", "/v1/messages/count_tokens?beta=true", "application/json", 400, "invalid_request_error"},
	} {
		p := r.do(t.Context(), row.method, row.path, strings.NewReader("{"), "Content-Type", row.contentType)
		if p.status != row.status || gjson.Get(p.body, "type").String() != "error" || gjson.Get(p.body, "error.type").String() != row.kind {
			t.Errorf("%s %s: %d %s, want %d, %s", row.method, row.path, p.status, p.body, row.status, row.kind)
		}
		if p.header.Get("X-Request-Id") == "" {
			t.Errorf("%s %s: no request id", row.method, row.path)
		}
	}
	r.wantUntouched()
}
