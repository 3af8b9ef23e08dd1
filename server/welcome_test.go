package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// Endpoints that every answer about what is served has to name.
var servedEndpoints = []string{
	"POST /v1/chat/completions", "POST /v1/completions", "POST /v1/messages", "POST /v1/messages/count_tokens", "POST /v1/responses",
	"GET /v1/models", "GET /health", "GET /healthz", "GET /readyz", "GET /version",
}

func TestWelcome_SaysWhatThisIs(t *testing.T) {
	r := newRig(t, setup{})
	for accept, text := range map[string]bool{
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": true, "text/plain": true, "Text/HTML": true, // browsers, and people
		"*/*": false, "": false, "application/json": false, "application/json, text/plain, */*": false, "text/html;q=0, application/json": false,
	} {
		t.Run(accept, func(t *testing.T) {
			p := r.do(context.Background(), http.MethodGet, "/", nil, "Accept", accept)
			if p.status != http.StatusOK || p.header.Get("Vary") != "Accept" || p.header.Get("X-Request-Id") == "" {
				t.Fatalf("got %d, %v", p.status, p.header)
			}
			r.wantSealed(p)
			for _, want := range append([]string{"Carryover", "prefill", "decode", "test", "--admin-listen"}, servedEndpoints...) {
				if !strings.Contains(p.body, want) {
					t.Errorf("the answer lacks %q:\n%s", want, p.body)
				}
			}
			if media := p.header.Get("Content-Type"); text {
				if media != "text/plain; charset=utf-8" || !strings.HasPrefix(p.body, "Carryover ") || !strings.HasSuffix(p.body, "\n") {
					t.Errorf("got %q:\n%s", media, p.body)
				}
			} else if media != "application/json" || !gjson.Valid(p.body) || gjson.Get(p.body, "name").String() != "carryover" || gjson.Get(p.body, "version").String() != "test" {
				t.Errorf("got %q: %s", media, p.body)
			}
		})
	}
	get := r.get("/")
	head := r.do(context.Background(), http.MethodHead, "/", nil)
	if head.status != http.StatusOK || head.body != "" || head.header.Get("Content-Type") != get.header.Get("Content-Type") {
		t.Errorf("HEAD /: %d %v %q", head.status, head.header, head.body)
	}
	r.wantUntouched()
}

// A path that is not served is answered with those that are, and with the one that may be meant.
func TestPaths_UnknownNamesWhatIsServed(t *testing.T) {
	r := newRig(t, setup{})
	for path, meant := range map[string]string{
		"/nope": "", "/v1/embeddings": "", "/metrics": "", "/ready": "GET /readyz", "/models": "GET /v1/models", "/api/v1/models": "GET /v1/models",
		"/completions": "POST /v1/completions", "/v1//completions": "POST /v1/completions", "/messages": "POST /v1/messages",
		"/v1/messages/counttokens": "POST /v1/messages/count_tokens", "/v1/chat/completion": "POST /v1/chat/completions",
		"/v1/v1/chat/completions": "POST /v1/chat/completions", "/v1/chat/completions/": "POST /v1/chat/completions",
	} {
		t.Run(path, func(t *testing.T) {
			var message string
			p := r.get(path)
			if strings.HasPrefix(path, "/v1/messages") {
				message = gjson.Get(p.body, "error.message").String()
				if p.status != http.StatusNotFound || gjson.Get(p.body, "error.type").String() != "not_found_error" {
					t.Errorf("got %d %s", p.status, p.body)
				}
			} else {
				message = r.wantError(p, http.StatusNotFound, "not_found").Message
			}
			for _, want := range servedEndpoints {
				if !strings.Contains(message, want) {
					t.Errorf("%q lacks %s", message, want)
				}
			}
			_, after, asks := strings.Cut(message, "Did you mean ")
			if got, _, _ := strings.Cut(after, "?"); asks != (meant != "") || got != meant {
				t.Errorf("%q, want it to ask for %q", message, meant)
			}
			if metrics := strings.Contains(message, "--admin-listen"); metrics != (path == "/metrics") {
				t.Errorf("%q: names the admin listener: %t", message, metrics)
			}
		})
	}
	r.wantUntouched()
}
