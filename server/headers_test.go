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
	r := newRig(t, setup{})
	p := r.send(ask("", true, "q"), append(hostileHeaders(), "Connection", "X-Secret", "User-Agent", "CANARY", "X-Request-Id", "mine", "Authorization", "Bearer CANARY")...)
	r.wantOK(p, "miss;")
	for _, l := range append(r.prefill[0].seen(), r.decode[0].seen()...) { // checkLegs has the allow-list
		if strings.Contains(fmt.Sprint(l.header), "CANARY") || l.id() == "mine" || l.header.Get("Authorization") != "Bearer upstream-key" {
			t.Errorf("an engine saw %v", l.header)
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

// A client's own key that an engine refuses is his own mistake, not that of the deployment: SDKs raise their error of authentication
// instead of trying again.
func TestHeaders_AKeyOfTheClientThatEnginesRefuse(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		ways(t, func(t *testing.T, stream bool) {
			r := newRig(t, setup{prefills: 2, decodes: 2, cfg: forwards})
			refuses := status(code, "key sk-123 at "+engineHost)
			refused := func(p reply) {
				t.Helper()
				if e := r.wantError(p, code, "invalid_api_key"); e.Type != "invalid_request_error" || e.Param != nil || strings.Contains(e.Message, "sk-") {
					t.Errorf("got %+v", e)
				}
				wantRetryAfter(t, p, "")
			}
			r.decode[0].always(refuses)
			refused(r.turn("", 1, stream, "Authorization", "Bearer mine"))
			r.prefill[0].always(refuses)
			for range 20 {
				refused(r.turn("", 1, stream, "Authorization", "Bearer mine"))
			}
			if p, d, others := len(r.prefill[0].seen()), len(r.decode[0].ofClients()), len(r.prefill[1].seen())+len(r.decode[1].ofClients()); p != 21 || d != 1 || others != 0 {
				t.Errorf("%d prefill and %d decode legs, want 21 and 1; %d at others, want none", p, d, others)
			}
			r.decode[0].models = refuses
			refused(r.do(t.Context(), http.MethodGet, "/v1/models", nil, "Authorization", "Bearer mine"))
			r.prefill[0].always(prefills)
			r.decode[0].always(decodes)
			r.wantOK(r.turn("", 1, stream, "Authorization", "Bearer good"), "miss;") // none of them is out of service
		})
	}
}
