package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"carryover/server/admin"
)

const token = "0123456789abcdef"

// header sets headers, which are given as name, value, name, value.
func header(pairs ...string) func(*http.Request) {
	return func(r *http.Request) {
		for i := 0; i < len(pairs); i += 2 {
			r.Header.Set(pairs[i], pairs[i+1])
		}
	}
}

// at names the host first.
func at(host string, change func(*http.Request)) func(*http.Request) {
	return func(r *http.Request) {
		r.Host = host
		change(r)
	}
}

func TestGuard_LetsOnlyOperatorsThrough(t *testing.T) {
	nothing := header()
	for _, tc := range []struct {
		name, token string
		change      func(*http.Request)
		want        int
	}{
		{"loopback without a token", "", nothing, 200},
		{"localhost", "", at("localhost:9480", nothing), 200},
		{"IPv6 loopback", "", at("[::1]:9480", nothing), 200},
		{"a name that was made to resolve to loopback", "", at("evil.example:9480", nothing), 403},
		{"a page of such a name, which is the same origin to a browser", "",
			at("evil.example:9480", header("Origin", "http://evil.example:9480", "Sec-Fetch-Site", "same-origin")), 403},
		{"localhost as a label", "", at("localhost.evil.example", nothing), 403},
		{"a page of another site", "", header("Origin", "http://evil.example"), 403},
		{"a page of another port, which is the same site to a browser", "", header("Sec-Fetch-Site", "same-site"), 403},
		{"the origin of another port", "", header("Origin", "http://127.0.0.1:8000"), 403},
		{"another name of the same address", "", header("Origin", "http://localhost:9480"), 403},
		{"a page without an address", "", header("Origin", "null"), 403},
		{"an origin that is none", "", header("Origin", "127.0.0.1:9480"), 403},
		{"an origin of another scheme", "", header("Origin", "chrome-extension://127.0.0.1:9480"), 403},
		{"an origin with a user", "", header("Origin", "http://x@127.0.0.1:9480"), 403},
		{"a page without Origin", "", header("Sec-Fetch-Site", "cross-site"), 403},
		{"our origin from another site", "", header("Origin", "http://127.0.0.1:9480", "Sec-Fetch-Site", "cross-site"), 403},
		{"another origin from our site", "", header("Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"), 403},
		{"a second origin", "", func(r *http.Request) { r.Header["Origin"] = []string{"http://127.0.0.1:9480", "http://evil.example"} }, 403},
		{"a browser's own address line", "", header("Sec-Fetch-Site", "none"), 200},
		{"our page", "", header("Sec-Fetch-Site", "same-origin"), 200},
		{"our page, with its origin", "", header("Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:9480"), 200},
		{"no token", token, nothing, 401},
		{"our page without the token", token, header("Sec-Fetch-Site", "same-origin"), 401},
		{"another token", token, header("Authorization", "Bearer 0123456789abcdeF"), 401},
		{"the token without its scheme", token, header("Authorization", token), 401},
		{"the token", token, header("Authorization", "Bearer "+token), 200},
		{"the token from another site", token, header("Authorization", "Bearer "+token, "Sec-Fetch-Site", "cross-site"), 403},
		{"the token from another host", token, at("carryover.internal:9480", header("Authorization", "Bearer "+token)), 200},
		{"our page behind a proxy with TLS", token,
			at("carryover.internal", header("Authorization", "Bearer "+token, "Origin", "https://carryover.internal")), 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			deps, _ := newDeps(t)
			deps.Token = tc.token
			want(t, tc.want, "", admin.New(deps), "GET", "/admin/instances", "", tc.change)
		})
	}
}

// A page of another site can send these without asking its browser first ("simple requests").
func TestGuard_RefusesWhatOtherPagesCanSend(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		change     func(*http.Request)
		want       int
	}{
		{"a form", "x=1", header("Content-Type", "application/x-www-form-urlencoded"), 415},
		{"JSON as text", "{}", header("Content-Type", "text/plain"), 415},
		{"nothing at all", "", header("Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"), 403},
		{"a form, from its own page", "x=1", header("Content-Type", "application/x-www-form-urlencoded", "Origin", "http://127.0.0.1:9480"), 415},
	} {
		t.Run(tc.name, func(t *testing.T) {
			deps, _ := newDeps(t)
			reloads := 0
			deps.Reload = func() error { reloads++; return nil }
			if want(t, tc.want, "", admin.New(deps), "POST", "/admin/reload", tc.body, tc.change); reloads != 0 {
				t.Errorf("%d reloads", reloads)
			}
		})
	}
}

func TestGuard_ShowsThePageWithoutTheToken(t *testing.T) {
	deps, _ := newDeps(t)
	deps.Token = token
	h := admin.New(deps)
	for path, status := range map[string]int{
		"/": 200, "/page/main.js": 200, "/page/style.css": 200, "/page/none.js": 404, "/page/": 404,
		"/admin/live": 401, "/admin/instances": 401, "/page/../admin/instances": 404, "/page/%2e%2e/admin/instances": 404, "//admin/instances": 401,
	} {
		want(t, status, "", h, "GET", path, "", header("Sec-Fetch-Site", "same-origin"))
	}
	want(t, 401, "", h, "POST", "/", "")
	want(t, 403, "", h, "GET", "/", "", header("Sec-Fetch-Site", "cross-site"))
	deps.Token = ""
	want(t, 403, "", admin.New(deps), "GET", "/", "", at("evil.example", header()))
}

func TestPage_LetsABrowserRunNothingElse(t *testing.T) {
	deps, _ := newDeps(t)
	for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/page/style.css": "text/css; charset=utf-8", "/page/main.js": "text/javascript; charset=utf-8"} {
		w := answered(t, admin.New(deps), path)
		policy := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:", "base-uri 'none'",
			"frame-ancestors 'none'", "form-action 'none'", "require-trusted-types-for 'script'",
		} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %s", path, policy, want)
			}
		}
		for name, want := range map[string]string{
			"Content-Type": kind, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if body := w.Body.String(); path == "/" && (strings.Contains(body, "<style") || strings.Contains(body, " style=") || strings.Contains(body, "://")) {
			t.Error("the page has a style of its own, or names another host")
		}
	}
}

// A browser that has a file asks whether it is still that.
func TestPage_IsSentOnce(t *testing.T) {
	deps, _ := newDeps(t)
	h := admin.New(deps)
	tag := answered(t, h, "/").Header().Get("ETag")
	if status, body := ask(t, h, "GET", "/", "", header("If-None-Match", tag)); tag == "" || status != http.StatusNotModified || body != "" {
		t.Errorf("tag %q: %d, %d bytes; want 304 and none", tag, status, len(body))
	}
}

// What watches over the process has no token, and gets the process' health and nothing else.
func TestGuard_HealthNeedsNoToken(t *testing.T) {
	healthy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("health of " + r.URL.Path)) })
	handler := admin.New(admin.Deps{Token: token, Handlers: admin.Handlers{Health: healthy}})
	for _, row := range []struct {
		method, path string
		site         []string
		want         int
	}{
		{"GET", "/healthz", nil, 200}, {"GET", "/readyz", nil, 200}, {"GET", "/health", nil, 200}, {"POST", "/healthz", nil, 401}, {"GET", "/healthz/", nil, 401},
		{"GET", "/admin/instances", nil, 401}, {"GET", "//healthz", nil, 401}, {"GET", "/healthz", []string{"cross-site"}, 403},
	} {
		part := ""
		if row.want == 200 {
			part = "health of " + row.path
		}
		want(t, row.want, part, handler, row.method, row.path, "", func(r *http.Request) { r.Header["Sec-Fetch-Site"] = row.site })
	}
}
