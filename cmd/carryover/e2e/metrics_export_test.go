package e2e

import (
	"net/http"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

func TestMetrics_AreExported(t *testing.T) {
	c := startCollector(t)
	setVariables(t, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="+c.url+"/v1/metrics", "OTEL_METRIC_EXPORT_INTERVAL=50", "OTEL_SERVICE_NAME=carryover-of-a-test")
	r := startRig(t, rigConfig{})
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

// Of an instance that was removed there are no gauges any more, and what its legs took stays.
func TestMetrics_RemovedInstancesGo(t *testing.T) {
	s := &scripted{rig: startRig(t, rigConfig{admin: true, file: "discovery: {registration: true}"})}
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
