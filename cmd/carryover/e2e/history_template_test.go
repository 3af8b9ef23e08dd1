package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// A template that is not append-only makes every ticket of the history proof a wrong
// one. While prefill does not say what its template does, nothing may be reused.
func TestHistoryProof_AQuestionThatFailsProvesNothing(t *testing.T) {
	for _, fault := range []vllmsim.Fault{
		{Kind: vllmsim.FaultStatus, Status: http.StatusServiceUnavailable},
		{Kind: vllmsim.FaultReset},
		{Kind: vllmsim.FaultGarbageJSON},
	} {
		t.Run(fault.Kind, func(t *testing.T) {
			cfg := vllmsim.DefaultConfig()
			cfg.Template = vllmsim.TemplateThinkingPrompt
			r := startRig(t, rigConfig{
				prefill: []vllmsim.Config{cfg}, decode: []vllmsim.Config{cfg}, flags: []string{"--proof", "history"},
			})
			fault.Route = "/tokenize"
			if err := r.prefill[0].SetFault(fault); err != nil {
				t.Fatal(err)
			}
			c := &chatting{rig: r, id: "main", cfg: cfg}
			c.want(t, "miss;reason=first_turn")
			for range 3 {
				c.want(t, "miss;reason=tokenize_failed")
			}
			r.verify(t, pins{})
		})
	}
}

// An engine without /tokenize can't be asked, and the history proof takes its template
// to be append-only. One that does not know the model yet can be asked later.
func TestHistoryProof_AnEngineThatHasNothingToAsk(t *testing.T) {
	for _, row := range []struct {
		status      int
		body, reuse string
	}{
		{http.StatusNotFound, `{"detail":"Not Found"}`, "hit;"},
		{http.StatusMethodNotAllowed, `{"detail":"Method Not Allowed"}`, "hit;"},
		{http.StatusNotFound, `{"error":{"message":"no model","type":"NotFoundError","param":"model","code":404}}`, "miss;reason=tokenize_failed"},
		{http.StatusNotFound, `{"object":"error","message":"no model","type":"NotFoundError","param":null,"code":404}`, "miss;reason=tokenize_failed"},
	} {
		cfg := vllmsim.DefaultConfig()
		var asked atomic.Int32
		behind := testrig.StartInstance(t, cfg, "")
		target, err := url.Parse(behind.URL())
		if err != nil {
			t.Fatal(err)
		}
		relay := httputil.NewSingleHostReverseProxy(target)
		relay.Transport = &http.Transport{DisableKeepAlives: true}
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/tokenize" {
				relay.ServeHTTP(w, req)
				return
			}
			asked.Add(1)
			w.WriteHeader(row.status)
			_, _ = io.WriteString(w, row.body)
		}))
		t.Cleanup(front.Close)
		r := startRig(t, rigConfig{decode: []vllmsim.Config{cfg}, flags: []string{"--proof", "history", "--prefill", front.URL}})
		r.prefill = append(r.prefill, behind)
		c := &chatting{rig: r, id: "main", cfg: cfg}
		c.want(t, "miss;reason=first_turn")
		for range 3 {
			c.want(t, row.reuse)
		}
		if row.reuse == "hit;" && asked.Load() != 1 {
			t.Errorf("%s: asked %d times, want once per start", row.body, asked.Load())
		}
		r.verify(t, pins{})
	}
}
