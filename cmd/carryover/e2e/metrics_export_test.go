package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

func TestMetrics_AreExported(t *testing.T) {
	c := startCollector(t, nil)
	setVariables(t, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="+c.url+"/v1/metrics", "OTEL_METRIC_EXPORT_INTERVAL=50", "OTEL_SERVICE_NAME=carryover-of-a-test")
	r := startRig(t, rigConfig{cfg: vllmsim.DefaultConfig()})
	r.talk("a").turn(t)
	for _, want := range []string{"carryover.turns", "first_turn", "carryover-of-a-test", "carryover.pinned.tokens"} {
		if !testrig.Eventually(func() bool { return c.has(want) }) {
			t.Errorf("the collector has not got %s", want)
		}
	}
	if n := scrape(t, r.metrics()).sum("carryover_turns_total"); n != 1 {
		t.Errorf("/metrics counts %v turns, want 1", n)
	}
	r.verify(t, pins{})
}

// A collector that takes exports and never answers, or is not there, holds up neither turns nor the end of the program.
func TestMetrics_ACollectorHoldsUpNothing(t *testing.T) {
	released := make(chan struct{})
	c := startCollector(t, func(r *http.Request) {
		select {
		case <-released:
		case <-r.Context().Done():
		}
	})
	defer close(released)
	for name, endpoint := range map[string]string{"never answers": c.url, "is not there": "http://127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			setVariables(t, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="+endpoint+"/v1/metrics", "OTEL_METRIC_EXPORT_INTERVAL=20", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT=120000")
			r := startRig(t, rigConfig{cfg: vllmsim.DefaultConfig()})
			if endpoint == c.url && !testrig.Eventually(func() bool { return c.has("carryover.build_info") }) {
				t.Fatal("nothing was exported")
			}
			began := time.Now()
			talk := r.talk("a")
			for range 5 {
				talk.turn(t)
			}
			if took := time.Since(began); took > time.Minute { // half of what one export may take
				t.Errorf("five turns took %s", took)
			}
			if !testrig.Eventually(func() bool { return scrape(t, r.metrics()).sum("carryover_turns_total") == 5 }) { // a turn counts behind its answer
				t.Errorf("/metrics counts %v turns, want 5", scrape(t, r.metrics()).sum("carryover_turns_total"))
			}
			began = time.Now()
			r.stop()
			if took := time.Since(began); took > app.MetricsEndLimit+time.Minute {
				t.Errorf("the end took %s", took)
			}
		})
	}
}

// Of an instance that was removed there are no gauges any more, and what its legs took stays.
func TestMetrics_RemovedInstancesGo(t *testing.T) {
	s := &scripted{rig: startOperated(t, rigConfig{cfg: vllmsim.DefaultConfig(), file: "discovery: {registration: true}"})}
	added := testrig.StartInstance(t, vllmsim.DefaultConfig(), "")
	body := map[string]string{"role": config.RoleDecode, "name": "added", "url": added.URL(), "kv_ttl": "480s"}
	s.operates(t, http.MethodPost, "/admin/instances", body, http.StatusOK)
	if !testrig.Eventually(func() bool { return s.scrape(t).sum("carryover_instance_state", `instance="added"`) == 1 }) {
		t.Fatal("the instance that was added is not shown")
	}
	if _, found := s.scrape(t).series[`carryover_pinned_tokens{instance="added"}`]; !found {
		t.Error("what it pins is not shown")
	}
	s.operates(t, http.MethodDelete, "/admin/instances/decode/added", nil, http.StatusOK)
	if !testrig.Eventually(func() bool { return !strings.Contains(s.scrape(t).text, `instance="added"`) }) {
		t.Error("the instance that was removed is still shown")
	}
}
