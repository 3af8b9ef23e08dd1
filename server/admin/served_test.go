package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/server/admin"
)

// What is not served is answered in the shape of the API's errors, with what is.
func TestAdmin_UnknownNamesWhatIsServed(t *testing.T) {
	health := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	handler := admin.New(admin.Deps{Token: token, Handlers: admin.Handlers{Health: health, Metrics: health}})
	for _, row := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/nope", 404, "not_found", ""},
		{"GET", "/v1/models", 404, "not_found", ""},
		{"POST", "/admin", 404, "not_found", ""},
		{"GET", "/admin/turns", 404, "not_found", ""}, // there is no journal
		{"POST", "/metrics", 405, "method_not_allowed", "GET, HEAD"},
		{"GET", "/admin/reload", 405, "method_not_allowed", "POST"},
	} {
		t.Run(row.method+" "+row.path, func(t *testing.T) {
			r := httptest.NewRequest(row.method, row.path, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			body := w.Body.String()
			if w.Code != row.status || gjson.Get(body, "error.code").String() != row.code || w.Header().Get("Allow") != row.allow {
				t.Fatalf("got %d, Allow %q, %s", w.Code, w.Header().Get("Allow"), body)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("content type %q", got)
			}
			message := gjson.Get(body, "error.message").String()
			for _, want := range []string{"GET /metrics", "GET /healthz", "GET /admin/instances", "POST /admin/reload"} {
				if row.status == http.StatusNotFound && !strings.Contains(message, want) {
					t.Errorf("%q lacks %s", message, want)
				}
			}
			if strings.Contains(message, "GET /admin/turns") {
				t.Errorf("%q names what this listener does not serve", message)
			}
		})
	}
}
