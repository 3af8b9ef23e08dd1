package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/server"
)

func forwards(c *server.Config) { c.ForwardAuthorization = true }

// hostileHeaders are 60 request headers by which a client could try to steer an engine or a hop before it.
func hostileHeaders() []string {
	names := strings.Fields(`X-Data-Parallel-Rank X-Prefiller-Host-Port X-KV-Transfer-Params X-KV-Host X-Remote-Host X-Forwarded-For X-Forwarded-Host
		X-Forwarded-Proto X-Forwarded-Port X-Forwarded-Prefix X-Real-Ip Forwarded Via True-Client-Ip Cf-Connecting-Ip X-Original-Url X-Rewrite-Url X-Original-Uri
		X-Http-Method X-Http-Method-Override X-Method-Override Proxy-Authorization Proxy-Connection Keep-Alive Te Cookie Origin Referer
		X-Api-Key Api-Key Openai-Organization Openai-Project X-Stainless-Lang Idempotency-Key X-Idempotency-Key Traceparent Tracestate Baggage
		X-B3-Traceid X-Amzn-Trace-Id X-Cloud-Trace-Context X-Correlation-Id Accept Accept-Language If-None-Match If-Match Range Cache-Control Pragma
		X-Session-Id X-Conversation-Id X-Dynamo-Session-Id X-Claude-Code-Agent-Id X-Request-Timeout X-Disagg-Spec X-Routing-Key X-Gateway-Destination-Endpoint
		X-Vllm-Rank X-Envoy-Original-Path X-Secret`)
	var header []string
	for _, name := range names {
		header = append(header, name, "CANARY")
	}
	return header
}

func TestHeaders_NoHeaderOfAClientReachesAnEngine(t *testing.T) {
	header := hostileHeaders()
	if n := len(header) / 2; n < 60 {
		t.Fatalf("got %d headers, want 60", n)
	}
	r := newRig(t, setup{})
	p := r.send(ask("", true, "q"), append(header, "Connection", "X-Secret", "User-Agent", "CANARY", "X-Request-Id", "mine", "Authorization", "Bearer CANARY")...)
	r.wantOK(p, "miss;")
	for _, l := range append(r.prefill[0].seen(), r.decode[0].seen()...) { // checkLegs has the allow-list
		if strings.Contains(fmt.Sprint(l.header), "CANARY") || l.id() == "mine" {
			t.Errorf("an engine saw %v", l.header)
		}
		if got := l.header.Get("Authorization"); got != "Bearer upstream-key" {
			t.Errorf("got authorization %q, want the configured key", got)
		}
	}
	if got := p.header.Get("X-Request-Id"); got != "mine" {
		t.Errorf("got X-Request-Id %q, want the client's", got)
	}
}

func TestHeaders_OnlyAPlainRequestIDIsKept(t *testing.T) {
	r := newRig(t, setup{})
	for id, kept := range map[string]bool{
		"a.b_c-9": true, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false, "a b": false, "a/b": false, "ä": false, "": false, "a\tb": false,
	} {
		for _, p := range []reply{r.send(ask("", true, "q"), "X-Request-Id", id), r.do(t.Context(), http.MethodGet, "/nope", nil, "X-Request-Id", id)} {
			if got := p.header.Get("X-Request-Id"); got == id != kept || got == "" {
				t.Errorf("%q: got %q", id, got)
			}
		}
	}
}

func TestHeaders_NoHeaderOfAnEngineReachesTheClient(t *testing.T) {
	names := strings.Fields(`Set-Cookie Server Trailer Upgrade Connection X-Secret Keep-Alive Proxy-Authenticate Www-Authenticate Location Refresh Link
		Access-Control-Allow-Origin Access-Control-Allow-Credentials Strict-Transport-Security Content-Security-Policy Alt-Svc Clear-Site-Data
		X-Request-Id X-Kv-Reuse X-Kv-Path Server-Timing Content-Disposition Content-Language Content-Location Etag Last-Modified Expires Age Vary Via Warning
		X-Accel-Redirect X-Accel-Buffering X-Sendfile Openai-Organization X-Engine-Host X-Powered-By Retry-After Sourcemap Nel Report-To Date`)
	if len(names) < 40 {
		t.Fatalf("got %d headers, want 40", len(names))
	}
	allowed := strings.Fields("Keep-Alive Content-Type Content-Length Cache-Control X-Accel-Buffering X-Request-Id X-Kv-Reuse X-Kv-Path Server-Timing Date Retry-After")
	spoil := func(act behaviour) behaviour {
		return func(w http.ResponseWriter, q *http.Request, l leg) {
			for _, name := range names {
				w.Header().Set(name, "CANARY")
			}
			w.Header().Set("Connection", "X-Secret")
			act(w, q, l)
		}
	}
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		r.prefill[0].next(spoil(prefills), spoil(prefills), spoil(status(429, "busy")))
		r.decode[0].next(spoil(decodes), spoil(status(503, "busy")), spoil(status(503, "busy")))
		for range 3 {
			p := r.turn("", 1, stream)
			if got := p.header.Get("Keep-Alive"); got != "timeout=650" {
				t.Errorf("status %d: got Keep-Alive %q", p.status, got)
			}
			for name, values := range p.header {
				if !slices.Contains(allowed, name) || strings.Contains(fmt.Sprint(values), "CANARY") {
					t.Errorf("status %d: got header %s: %q", p.status, name, values)
				}
			}
		}
	})
}

func TestHeaders_OfAStreamForbidBuffering(t *testing.T) {
	r := newRig(t, setup{})
	p := r.turn("c", 1, true)
	for name, want := range map[string]string{"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no", "Content-Length": ""} {
		if got := p.header.Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	for _, want := range []string{"lookup;dur=", "prefill;dur=", "ttft;dur="} {
		if got := p.header.Get("Server-Timing"); !strings.Contains(got, want) {
			t.Errorf("got Server-Timing %q, want %q in it", got, want)
		}
	}
}

func TestHeaders_AuthorizationIsForwardedOnlyIfAsked(t *testing.T) {
	r := newRig(t, setup{cfg: forwards})
	r.wantOK(r.send(ask("", true, "q"), "Authorization", "Bearer client"), "miss;")
	r.wantOK(r.send(ask("", true, "q")), "miss;")
	for _, legs := range [][]leg{r.prefill[0].seen(), r.decode[0].seen()} {
		if a, b := legs[0].header.Get("Authorization"), legs[1].header.Get("Authorization"); a != "Bearer client" || b != "Bearer upstream-key" {
			t.Errorf("got %q and %q", a, b)
		}
	}
}

func TestHeaders_ForwardedForIsNotBelieved(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.send(ask("c", true, "q"), "X-Forwarded-For", "203.0.113.9", "X-Real-Ip", "203.0.113.9"), "miss;")
	if strings.Contains(r.log.String(), "203.0.113.9") {
		t.Error("the log has an address that any client can make up")
	}
}

// A client's own key that an engine refuses is his own mistake, not that of the deployment: SDKs raise their error of authentication
// instead of trying again.
func TestHeaders_AKeyOfTheClientThatEnginesRefuse(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		for _, stream := range []bool{true, false} {
			r := newRig(t, setup{prefills: 2, decodes: 2, cfg: forwards})
			refuses := status(code, "key sk-123 at "+engineHost)
			legs := func() (prefill, decode int) {
				return len(r.prefill[0].seen()) + len(r.prefill[1].seen()), len(r.decode[0].ofClients()) + len(r.decode[1].ofClients())
			}
			refused := func(p reply) {
				t.Helper()
				if e := r.wantError(p, code, "invalid_api_key"); e.Type != "invalid_request_error" || e.Param != nil || strings.Contains(e.Message, "sk-") || strings.Contains(e.Message, engineHost) {
					t.Errorf("got %+v", e)
				}
				wantRetryAfter(t, p, "")
			}
			r.decode[0].always(refuses)
			r.decode[1].always(refuses)
			refused(r.turn("", 1, stream, "Authorization", "Bearer mine"))
			if prefill, decode := legs(); prefill != 1 || decode != 1 {
				t.Errorf("%d: %d prefill and %d decode legs, want one of each", code, prefill, decode)
			}
			r.prefill[0].always(refuses)
			r.prefill[1].always(refuses)
			for n := range 20 {
				refused(r.turn("", 1, stream, "Authorization", "Bearer mine"))
				if prefill, decode := legs(); prefill != n+2 || decode != 1 {
					t.Fatalf("%d: %d prefill and %d decode legs, want %d and 1", code, prefill, decode, n+2)
				}
			}
			for i := range 2 {
				r.prefill[i].always(prefills)
				r.decode[i].always(decodes)
			}
			r.wantOK(r.turn("", 1, stream, "Authorization", "Bearer good"), "miss;") // none of them is out of service
			for _, engine := range r.decode {
				engine.models = refuses
			}
			refused(r.do(t.Context(), http.MethodGet, "/v1/models", nil, "Authorization", "Bearer mine"))
			// Without a credential of its own a client's request goes with our key.
			r.prefill[0].always(refuses)
			r.prefill[1].always(refuses)
			r.wantError(r.turn("", 1, stream), 502, "upstream_auth")
		}
	}
}
