package server_test

import (
	"net/http"
	"testing"

	"carryover/server"
	"carryover/server/turn"
	"carryover/upstream"
)

// needy is a connector whose decode engines serve nothing without a hand-over, as those of MoRI-IO.
type needy struct {
	server.Connector
	ids   bool
	alone string // why no plan has a prefill leg
}

func (c needy) Traits() upstream.Traits { return upstream.Traits{NeedsPrefill: true, IDs: c.ids} }

func (c needy) Plan(t upstream.Transfer) (upstream.Plan, error) {
	if c.alone != "" {
		return upstream.Plan{Order: upstream.DecodeAlone, Why: c.alone}, nil
	}
	return c.Connector.Plan(t)
}

func needyRig(t *testing.T, c needy, s setup) *rig {
	t.Helper()
	s.deps = func(d *server.Deps) {
		c.Connector = d.Connector
		d.Connector = c
	}
	return newRig(t, s)
}

// Whatever fails or rules prefill out, decode gets nothing that it would have to compute by itself.
func TestNeedsPrefill_DecodeServesNothingAlone(t *testing.T) {
	chat := ask("c", true, "q")
	for name, row := range map[string]struct {
		c      needy
		s      setup
		fails  behaviour
		path   string
		body   string
		status int
		code   string
	}{
		"several choices":             {body: plus(chat, `,"n":2`), status: 400, code: "not_disaggregable"},
		"several prompts":             {path: textPath, body: `{"model":"m","prompt":["a","b"]}`, status: 400, code: "not_disaggregable"},
		"no ids":                      {c: needy{ids: true}, body: `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]}`, status: 400, code: "not_disaggregable"},
		"no plan":                     {c: needy{alone: "not_registered"}, body: chat, status: 503, code: "prefill_unavailable"},
		"no instance":                 {s: setup{deadPrefills: -2}, body: chat, status: 503, code: "prefill_unavailable"},
		"it fails":                    {fails: status(500, "boom"), body: chat, status: 502, code: "prefill_failed"},
		"it fails, decode_only":       {s: setup{cfg: onPrefillFailure(turn.PrefillDecodeOnly)}, fails: hangUp, body: chat, status: 502, code: "prefill_failed"},
		"it is gone, decode_only":     {s: setup{deadPrefills: 1, cfg: onPrefillFailure(turn.PrefillDecodeOnly)}, body: chat, status: 503, code: "prefill_unavailable"},
		"its answer can't be read":    {fails: replyBody("application/json", `{`), body: chat, status: 502, code: "bad_prefill_answer"},
		"its answer has no hand-over": {fails: replyBody("application/json", `{"kv_transfer_params":null}`), body: chat, status: 502, code: "bad_prefill_answer"},
		"its hand-over is wrong":      {fails: replyBody("application/json", `{"kv_transfer_params":{}}`), body: chat, status: 502, code: "bad_prefill_answer"},
	} {
		t.Run(name, func(t *testing.T) {
			r := needyRig(t, row.c, row.s)
			if row.fails != nil {
				r.prefill[0].always(row.fails)
			}
			if row.path == "" {
				row.path = chatPath
			}
			r.wantError(r.sendTo(row.path, row.body), row.status, row.code)
			if n := len(r.decode[0].seen()); n != 0 {
				t.Errorf("decode got %d legs without a hand-over", n)
			}
		})
	}
}

func TestNeedsPrefill_NoRequestIsTooShort(t *testing.T) {
	r := needyRig(t, needy{}, setup{cfg: func(c *server.Config) { c.DisaggThreshold = 1000 }})
	p := r.sendTo(chatPath, ask("c", true, "q"))
	if p.status != http.StatusOK {
		t.Fatalf("got %d %s", p.status, p.body)
	}
	r.wantPath(p, "prefill_decode;tokens=0")
}

func TestNeedsPrefill_AnotherInstanceIsTried(t *testing.T) {
	r := needyRig(t, needy{}, setup{prefills: 2})
	r.prefill[0].always(status(500, "boom"))
	p := r.sendTo(chatPath, ask("c", true, "q"))
	if p.status != http.StatusOK || len(r.prefill[1].seen()) != 1 {
		t.Errorf("got %d %s with %d legs on the other instance, want an answer", p.status, p.body, len(r.prefill[1].seen()))
	}
}
