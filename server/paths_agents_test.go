package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

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
