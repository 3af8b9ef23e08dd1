package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream"
)

// cutOff checks that a client saw an abnormal end, and no [DONE].
func cutOff(t *testing.T, p reply) {
	t.Helper()
	if !errors.Is(p.err, io.ErrUnexpectedEOF) {
		t.Errorf("got end %v after %q, want unexpected EOF", p.err, p.body)
	}
	if strings.Contains(p.body, "[DONE]") {
		t.Errorf("got %q, want no [DONE]", p.body)
	}
}

// lastError takes the error event off the end of a stream and checks its code.
func lastError(t *testing.T, body, code string) (rest string) {
	t.Helper()
	at := strings.LastIndex(body, `data: {"error":`)
	if at < 0 || !strings.HasSuffix(body, "\n\n") {
		t.Fatalf("got %q, want an error event at the end", body)
	}
	event := strings.TrimSuffix(strings.TrimPrefix(body[at:], "data: "), "\n\n")
	if e := parseError(t, event); e.Code != code {
		t.Errorf("got error event %s, want code %s", event, code)
	}
	return body[:at]
}

// Decode alone is bounded by itself and needs none.
func TestRetry_WithoutBudgetThereIsNone(t *testing.T) {
	r := newRig(t, setup{})
	r.server.SpendRetries()
	r.prefill[0].next(status(503, "busy"))
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;reason=bypass")
	r.wantPath(p, "decode_only;reason=prefill_failed;tokens=2")
	if n := len(r.prefill[0].seen()); n != 1 {
		t.Errorf("got %d prefill legs, want 1: the retry budget is spent", n)
	}
	r.decode[0].next(status(503, "busy"))
	r.wantError(r.turn("c", 1, true), 503, "decode_failed")
	if n := len(r.decode[0].ofClients()); n != 2 {
		t.Errorf("got %d decode legs, want one for each turn", n)
	}
}

func TestRetry_NoneBeyondTheFirstByteTimeout(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.FirstByteTimeout = time.Nanosecond; c.ForwardAuthorization = true }})
	r.prefill[0].next(status(503, "busy"))
	r.wantError(r.turn("c", 1, true), 503, "prefill_failed")
	if n := len(r.prefill[0].seen()); n != 1 {
		t.Errorf("got %d prefill legs, want 1", n)
	}
}

// roleOnly is vLLM's first chunk, which says nothing of whether the KV could be loaded.
func roleOnly(l leg) []string { return chatEvents(l)[:1] }

func nothing(leg) []string { return nil }

// kvFails is what vLLM streams when it could not load the KV (recording 08).
func kvFails(w http.ResponseWriter, _ *http.Request, l leg) {
	say(w, append(roleOnly(l), `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`, "[DONE]")...)
}

func TestModels_OfTheFirstEngineThatAnswers(t *testing.T) {
	r := newRig(t, setup{deadPrefills: 1, deadDecodes: 1})
	if p := r.get("/v1/models"); p.status != 200 || !strings.Contains(p.body, "max_model_len") {
		t.Errorf("got %d %q, want the list of the first engine that answers", p.status, p.body)
	}
	// The engines judge a client's credential all alike.
	judged := newRig(t, setup{decodes: 2, cfg: forwards})
	judged.decode[0].models = status(401, "no")
	judged.decode[1].models = func(http.ResponseWriter, *http.Request, leg) { t.Error("a second engine was asked") }
	judged.wantError(judged.get("/v1/models"), 502, "upstream_auth")
	dead := newRig(t, setup{deadPrefills: -1, deadDecodes: -1})
	dead.wantError(dead.get("/v1/models"), 503, "prefill_unavailable")
}

// otherIDs fails a prefill leg as one that was computed from other ids than it was sent.
type otherIDs struct {
	upstream.Legs
	fails bool
}

func (e *otherIDs) Prefill(ctx context.Context, l upstream.Leg) (upstream.PrefillAnswer, error) {
	if e.fails {
		e.fails = false
		return upstream.PrefillAnswer{}, &upstream.LegError{Role: upstream.RolePrefill, Instance: l.Instance.Name, Kind: upstream.IDEcho, Sent: true, Err: errors.New("x")}
	}
	return e.Legs.Prefill(ctx, l)
}

func TestRetry_AfterAFailedIDEchoCostsNoBudget(t *testing.T) {
	r := newRig(t, setup{deps: func(d *server.Deps) { d.Legs = &otherIDs{d.Legs, true} }})
	r.server.SpendRetries()
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.prefill[0].wantLegs(1)
}
