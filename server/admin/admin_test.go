package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"carryover/server/admin"
	"carryover/server/events"
	"carryover/server/journal"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// first picks the first candidate.
type first struct{}

func (first) Pick([]upstream.Candidate, string) int { return 0 }

// registry is a list in memory.
type registry struct {
	fleet *fleet.Fleet
	added []upstream.Instance
	err   error
}

func (r *registry) Add(instance upstream.Instance) error {
	if r.err == nil {
		r.added = append(r.added, instance)
		r.fleet.Set(r.added)
	}
	return r.err
}

func (r *registry) Remove(role upstream.Role, name string) bool {
	for i, instance := range r.added {
		if instance.Role == role && instance.Name == name {
			r.added = append(r.added[:i], r.added[i+1:]...)
			r.fleet.Set(r.added)
			return true
		}
	}
	return false
}

func newDeps(t *testing.T) (admin.Deps, *registry) {
	t.Helper()
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: time.Second})
	t.Cleanup(client.Close)
	engines := fleet.New(fleet.Config{Client: client, Prefill: first{}, Decode: first{}, ReadLimit: time.Second, AskLimit: time.Second})
	r := &registry{fleet: engines}
	return admin.Deps{
		Fleet: engines, Registration: admin.Registration{Registry: r}, Reload: func() error { return nil },
		State: admin.State{
			Pinned: func(*fleet.Engine) int { return 77 },
			Drain: func(_ context.Context, role upstream.Role, name string, drain bool) (found, shared bool) {
				return engines.Drain(role, name, drain), drain
			},
			Budget: func(*fleet.Engine) int { return 900 }, Waiting: func() (int, int) { return 3, 4 }, Open: func() int { return 5 },
			Ready:    func() (string, string) { return "no_instance", "no decode instance answers" },
			Identity: admin.Identity{Version: "v9", Replica: "host-1", Reasons: map[string]string{"first_turn": "it is the first"}},
		},
		Logger: slog.New(slog.DiscardHandler), Events: &events.List{}, Journal: journal.New(journal.Config{}),
		Conversations: admin.Conversations{HashID: func(id string) (hash [8]byte) { copy(hash[:], id); return hash }},
	}, r
}

// ask sends a request, and returns status and body.
func ask(t *testing.T, h http.Handler, method, path, body string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(method, path, body, change...))
	return w.Code, w.Body.String()
}

// want wants a request to be answered with a status, and a text that has a part.
func want(t *testing.T, status int, part string, h http.Handler, method, path, body string, change ...func(*http.Request)) {
	t.Helper()
	if got, answer := ask(t, h, method, path, body, change...); got != status || !strings.Contains(answer, part) {
		t.Errorf("%s %s %.100s: %d %.300s, want %d %s", method, path, body, got, answer, status, part)
	}
}

func get(t *testing.T, h http.Handler, path string) (status int, body string) {
	t.Helper()
	return ask(t, h, "GET", path, "")
}

// answered returns the whole answer to a GET.
func answered(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request("GET", path, ""))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w
}

// request is one of the operator's own machine.
func request(method, path, body string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:9480"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, change := range change {
		change(r)
	}
	return r
}

func TestInstances_AreAddedShownAndRemoved(t *testing.T) {
	deps, r := newDeps(t)
	h := admin.New(deps)
	want(t, 200, "", h, "POST", "/admin/instances", `{"role":"decode","url":"http://10.0.0.7:8200","name":"d/7","weight":3,"kv_ttl":"400s"}`)
	if got := r.added[0]; got.Role != upstream.RoleDecode || got.Weight != 3 || got.KVTTL != 400*time.Second || got.KVHost != "" {
		t.Errorf("added %+v", got)
	}
	_, done, err := deps.Fleet.Pick(upstream.RoleDecode, fleet.Hint{Tokens: 500}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, body := get(t, h, "/admin/instances")
	done()
	var shown struct {
		Instances []map[string]any `json:"instances"`
	}
	if err := json.Unmarshal([]byte(body), &shown); err != nil || len(shown.Instances) != 1 {
		t.Fatalf("list %s: %v", body, err)
	}
	for key, want := range map[string]any{"role": "decode", "name": "d/7", "url": "http://10.0.0.7:8200", "weight": 3.0, "state": "up", "in_flight": 1.0, "queued_tokens": 500.0, "pinned_tokens": 77.0, "budget_tokens": 900.0} {
		if shown.Instances[0][key] != want {
			t.Errorf("%s is %v, want %v", key, shown.Instances[0][key], want)
		}
	}
	const path = "/admin/instances/decode/d%2F7"
	want(t, 200, `"shared":true`, h, "POST", path+"/drain", "")
	want(t, 200, `"state":"draining"`, h, "GET", "/admin/instances", "")
	want(t, 200, `"shared":false`, h, "POST", path+"/undrain", "")
	if want(t, 200, "", h, "DELETE", path, ""); len(r.added) != 0 {
		t.Errorf("left %v", r.added)
	}
	want(t, 404, "", h, "DELETE", path, "")
	want(t, 404, "", h, "DELETE", "/admin/instances/both/x", "")
}

func TestInstances_BadOnesAreRefusedAndNamed(t *testing.T) {
	for body, param := range map[string]string{
		`{"role":"both","url":"http://a:1"}`:                             "role",
		`{"role":"prefill","url":"http://user:pw@a:1"}`:                  "url",
		`{"role":"prefill","url":"http://a:1/v1"}`:                       "url",
		`{"role":"prefill","url":"file:///etc/passwd"}`:                  "url",
		`{"role":"prefill","url":"http://a:1","name":"a b"}`:             "name",
		`{"role":"prefill","url":"http://a:1","weight":-1}`:              "weight",
		`{"role":"prefill","url":"http://a:1","kv_host":"a b"}`:          "kv_host",
		`{"role":"prefill","url":"http://a:1","kv_ttl":"480s"}`:          "kv_ttl",
		`{"role":"decode","url":"http://a:1","kv_ttl":"soon"}`:           "kv_ttl",
		`{"role":"decode","url":"http://a:1","secret":"unknown member"}`: "",
		`[]`: "",
	} {
		deps, r := newDeps(t)
		part := `"param":"` + param + `"`
		if param == "" {
			part = `"param":null`
		}
		if want(t, 400, part, admin.New(deps), "POST", "/admin/instances", body); len(r.added) != 0 {
			t.Errorf("%s: added %d", body, len(r.added))
		}
	}
}

func TestInstances_NeedARegistry(t *testing.T) {
	deps, r := newDeps(t)
	r.err = errors.New("1024 instances are registered")
	const body = `{"role":"prefill","url":"http://a:1"}`
	want(t, 409, "1024", admin.New(deps), "POST", "/admin/instances", body)
	deps.Registration.Registry = nil
	want(t, 403, "", admin.New(deps), "POST", "/admin/instances", body)
}

func TestReload_SaysWhyNothingChanged(t *testing.T) {
	deps, _ := newDeps(t)
	want(t, 200, "", admin.New(deps), "POST", "/admin/reload", "")
	deps.Reload = func() error { return errors.New(`routing.decode: "best" (f.yaml:3): want one of auto`) }
	want(t, 422, "f.yaml:3", admin.New(deps), "POST", "/admin/reload", "")
}

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
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, request(row.method, row.path, "", header("Authorization", "Bearer "+token)))
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
