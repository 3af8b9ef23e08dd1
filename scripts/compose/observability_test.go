package compose

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestMetrics_FindsWhatAlertsAndDashboardsName(t *testing.T) {
	used, err := Metrics(Root)
	must(t, err)
	if len(used) < 30 {
		t.Errorf("%d metrics are named; where are the others?", len(used))
	}
	for metric, labels := range map[string][]string{
		"carryover_turn_ttft_seconds_bucket": {"le", "path"},
		"carryover_turns_total":              {"follow_up", "outcome", "reason"},
		"carryover_build_info":               {"replica"},
		"carryover_queue_length":             {"queue"},
	} {
		for _, label := range labels {
			if used[metric] == nil || !used[metric].Labels[label] {
				t.Errorf("label %s of %s is not found", label, metric)
			}
		}
	}
	for metric, use := range used {
		if strings.Contains(metric, ":") || metric == "up" {
			t.Errorf("%s is made by Prometheus, used in %v", metric, use.Where)
		}
	}
}

// TestReasons_AreOfAllTurnsWithoutAHit holds that whoever asks for reasons gets those of the outcome prefix, too.
func TestReasons_AreOfAllTurnsWithoutAHit(t *testing.T) {
	dashboards, err := filepath.Glob(observability + "grafana/dashboards/*.json")
	if err != nil || len(dashboards) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, path := range append(dashboards, observability+"prometheus/rules.yml", filepath.Join(Root, "docs", "operating.md"), filepath.Join(Root, "docs", "monitoring.md")) {
		text := read(t, path)
		if strings.Contains(strings.ReplaceAll(text, `\`, ""), `outcome="miss"`) {
			t.Errorf("%s asks for misses and leaves out the turns whose outcome is prefix", path)
		}
	}
}

func TestUsed_Missing(t *testing.T) {
	given := Given{}
	given.Add("# TYPE t_seconds histogram\nt_seconds_bucket{outcome=\"a,le=\\\"b\",le=\"+Inf\"} 3\nt_seconds_count{outcome=\"a\"} 3\nc_total 7\ng{instance=\"d-1\"} 1e+06\n")
	for expr, want := range map[string]string{
		`histogram_quantile(0.9, sum by (le, outcome) (rate(t_seconds_bucket{replica=~"x"}[5m])))`: "",
		`sum(rate(c_total[1m])) / ignoring(x) (sum(g) > 0)`:                                        "",
		`max by (instance) (g{instance!="t_total"} offset 5m)`:                                     "",
		`histogram_quantile(0.9, rate(t_seconds[5m]))`:                                             "t_seconds,",
		`rate(c_totals[1m]) or c_total`:                                                            "c_totals,",
		`sum by (role) (g)`:                                                                        "label role of g,",
		`t_seconds_count{outcom="a"}`:                                                              "label outcom of t_seconds_count,",
		`max_over_time(sum(rate(nothing_total[1m]))[1h:1m])`:                                       "nothing_total,",
	} {
		used := Used{}
		if err := used.expression("here", expr); err != nil {
			t.Errorf("%s: %v", expr, err)
		}
		missing := strings.Join(used.Missing(given), "\n")
		if (missing == "") != (want == "") || !strings.HasPrefix(missing, want) {
			t.Errorf("%s: %q, want %q", expr, missing, want)
		}
	}
	if err := (Used{}).expression("here", "sum by role (g)"); err == nil {
		t.Error("what is no PromQL is accepted")
	}
}

func TestUsed_RulesAreReadAsPrometheusReadsThem(t *testing.T) {
	text := read(t, observability+"prometheus/rules.yml")
	for from, to := range map[string]string{
		"for: 1m": "for: soon", "severity: critical": "sev-erity: critical", "expr: up{": "exp: up{", "{{ $labels.replica }}": "{{ $label.replica }}", "== 0": "=== 0",
	} {
		broken := strings.Replace(text, from, to, 1)
		path := filepath.Join(t.TempDir(), "rules.yml")
		place(t, path, broken)
		if err := (Used{}).rules(path); err == nil || broken == text {
			t.Errorf("%q is accepted in the place of %q", to, from)
		}
	}
}
