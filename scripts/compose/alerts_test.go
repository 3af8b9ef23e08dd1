package compose

import (
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// at is the moment of which alerts are asked, after 26 hours of series with a sample a minute.
const at = 26 * time.Hour

// TestAlerts asks each alert of series for which it has to fire, and of others, close to them, for which it must not. Values are in the
// notation of Prometheus' own tests: first value, growth per minute, how many times. How long an alert waits is not looked at.
func TestAlerts(t *testing.T) {
	tests := map[string]struct{ fires, quiet string }{
		"CarryoverDown": {
			`up{job="carryover", replica="carryover-1"} 0x1560`,
			`up{job="carryover", replica="carryover-1"} 1x1560` + "\n" + `up{job="engines"} 0x1560`,
		},
		"CarryoverReuseDropped": {
			`carryover:spared_ratio:rate10m 0.9x1540 0.4x20` + "\n" + `carryover:followups:rate10m 1x1560`,
			`carryover:spared_ratio:rate10m 0.3x60 0.9x60 0.7x1440` + "\n" + `carryover:followups:rate10m 1x1560`,
		},
		"CarryoverNoParamsFromEngine": {
			`carryover_turns_total{outcome="miss", reason="engine_sends_no_params"} 0+1x1560`,
			`carryover_turns_total{outcome="miss", reason="first_turn"} 0+1x1560`,
		},
		"CarryoverStoreUnavailable": {`carryover_redis_up 0x1560`, `carryover_redis_up 1x1560`},
		"CarryoverStoreFailing": {
			`carryover_turns_total{outcome="miss", reason="store_unavailable"} 0+1x1560`,
			`carryover_turns_total{outcome="miss", reason="store_unavailable"} 3x1560`,
		},
		"CarryoverInstanceDown": {
			`carryover_instance_state{role="prefill", instance="p", state="open"} 1x1560`,
			`carryover_instance_state{role="prefill", instance="p", state="up"} 1x1560`,
		},
		"CarryoverInstanceEjected": {
			`carryover_instance_state{role="decode", instance="d", state="ejected"} 1x1560`,
			`carryover_instance_state{role="decode", instance="d", state="draining"} 1x1560`,
		},
		"CarryoverPairApart": {
			`carryover_instance_state{role="prefill", instance="p", state="apart"} 1x1560`,
			`carryover_instance_state{role="prefill", instance="p", state="up"} 1x1560`,
		},
		"CarryoverPrefillQuarantined": {
			`carryover_instance_state{role="prefill", instance="p", state="quarantined"} 1x1560`,
			`carryover_instance_state{role="prefill", instance="p", state="quarantined"} 1x1480 _x80`,
		},
		"CarryoverHandoversStranded": {
			`carryover_stranded_handovers_total 0+1x1560`,
			`carryover_stranded_handovers_total 5+0x1560`,
		},
		"CarryoverReleasesFail": {
			`carryover_releases_total{by="leg", result="failed"} 0+1x1560`,
			`carryover_releases_total{by="leg", result="sent"} 0+1x1560`,
		},
		"CarryoverHandBacksFail": {
			`carryover_hand_backs_total{outcome="failed"} 0+1x1560`,
			`carryover_hand_backs_total{outcome="done"} 0+1x1560` + "\n" + `carryover_hand_backs_total{outcome="requeued"} 0+1x1560`,
		},
		"CarryoverPinnedOverBudget": {
			`carryover_pinned_tokens{instance="d", replica="a"} 60x1560` + "\n" + `carryover_pinned_tokens{instance="d", replica="b"} 60x1560` + "\n" +
				`carryover_pinned_budget_tokens{instance="d", replica="a"} 100x1560` + "\n" + `carryover_pinned_budget_tokens{instance="d", replica="b"} 100x1560`,
			`carryover_pinned_tokens{instance="d", replica="a"} 60x1560` + "\n" + `carryover_pinned_tokens{instance="e", replica="b"} 60x1560` + "\n" +
				`carryover_pinned_budget_tokens{instance="d", replica="a"} 100x1560` + "\n" + `carryover_pinned_budget_tokens{instance="e", replica="b"} 100x1560`,
		},
		"CarryoverErrors": {
			`http_server_request_duration_seconds_count{http_response_status_code="502"} 0+1x1560` + "\n" + `http_server_request_duration_seconds_count{http_response_status_code="200"} 0+9x1560`,
			`http_server_request_duration_seconds_count{http_response_status_code="503", replica="rollout"} 0x1559 1` + "\n" + `http_server_request_duration_seconds_count{http_response_status_code="200", replica="rollout"} 0+9x1560` + "\n" +
				`http_server_request_duration_seconds_count{http_response_status_code="503", replica="idle"} 0+1x1560`,
		},
		"CarryoverQueueWaits": {
			`carryover_queue_length{queue="place"} 3x1560`,
			`carryover_queue_length{queue="place"} 3x1559 0`,
		},
		"CarryoverSlowFirstToken": {
			`carryover_turn_ttft_seconds_bucket{le="10", path="prefill_decode"} 0+9x1560` + "\n" + `carryover_turn_ttft_seconds_bucket{le="20", path="prefill_decode"} 0+10x1560` + "\n" +
				`carryover_turn_ttft_seconds_bucket{le="+Inf", path="prefill_decode"} 0+10x1560`,
			`carryover_turn_ttft_seconds_bucket{le="10", path="prefill_decode"} 0+10x1560` + "\n" + `carryover_turn_ttft_seconds_bucket{le="20", path="prefill_decode"} 0+10x1560` + "\n" +
				`carryover_turn_ttft_seconds_bucket{le="+Inf", path="prefill_decode"} 0+10x1560`,
		},
	}
	all := rules(t)
	for alert, rule := range all {
		if rule.Alert == "" {
			continue
		}
		series, found := tests[alert]
		if !found {
			t.Errorf("%s is not tested", alert)
			continue
		}
		if n := len(query(t, series.fires, rule.Expr)); n != 1 {
			t.Errorf("%s: %d alerts, want one, of\n%s", alert, n, series.fires)
		}
		if n := len(query(t, series.quiet, rule.Expr)); n != 0 {
			t.Errorf("%s: %d alerts, want none, of\n%s", alert, n, series.quiet)
		}
	}
	if len(all) < len(tests)+2 {
		t.Errorf("%d rules, want the %d alerts and what they are made of", len(all), len(tests))
	}
}

// TestRecordings computes what alerts are made of: of six turns a minute three can be hits, and of 300 tokens 200 are saved.
func TestRecordings(t *testing.T) {
	series := `carryover_turns_total{follow_up="true", outcome="hit", reason="none"} 0+2x1560
carryover_turns_total{follow_up="true", outcome="prefix", reason="expired"} 0+1x1560
carryover_turns_total{follow_up="false", outcome="miss", reason="first_turn"} 0+2x1560
carryover_turns_total{follow_up="false", outcome="off", reason="none"} 0+1x1560`
	all := rules(t)
	followups := query(t, series, all["carryover:followups:rate10m"].Expr)
	if len(followups) != 1 || followups[0].F < 2.99/60 || followups[0].F > 3.01/60 {
		t.Errorf("follow-ups a second are %v, want 3/60", followups)
	}
	ratio := query(t, `carryover_reuse_tokens_read_total{proof="tokens"} 0+150x1560
carryover_reuse_tokens_read_total{proof="engine"} 0+50x1560
carryover_prompt_tokens_total{follow_up="true"} 0+300x1560
carryover_prompt_tokens_total{follow_up="false"} 0+900x1560`, all["carryover:spared_ratio:rate10m"].Expr)
	if len(ratio) != 1 || ratio[0].F < 0.66 || ratio[0].F > 0.67 {
		t.Errorf("prefill is spared %v, want 2/3", ratio)
	}
}

// Each alert leads to a heading that says what to do first: with a command.
func TestAlerts_LeadToARunbook(t *testing.T) {
	for name, rule := range rules(t) {
		path, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
		if rule.Alert == "" {
			continue
		}
		page, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Errorf("%s: runbook_url: %v", name, err)
			continue
		}
		heading := regexp.MustCompile(`(?im)^##+ ` + strings.ReplaceAll(anchor, "-", "[ -]") + "\n\n(```)?")
		if found := heading.FindSubmatch(page); found == nil || len(found[1]) == 0 {
			t.Errorf("%s: no heading %s of %s with a command below it", name, anchor, path)
		}
	}
}

// rules are the alerts and recordings by name.
func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(observability+"prometheus/rules.yml", false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	all := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			all[rule.Alert+rule.Record] = rule
		}
	}
	return all
}

// query evaluates an expression over series.
func query(t *testing.T, text, expr string) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 20, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer func() { _ = engine.Close() }() // it says nothing that a test could use
	q, err := engine.NewInstantQuery(t.Context(), parse(t, text), nil, expr, time.UnixMilli(at.Milliseconds()))
	must(t, err)
	defer q.Close()
	vector, err := q.Exec(t.Context()).Vector()
	must(t, err)
	return vector
}
