package compose

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// Used is where metrics are named, and with which labels.
type Used map[string]*Use

// Use is that of one metric.
type Use struct {
	Where  []string
	Labels map[string]bool
}

// Given are the labels that a metric has on its way to Prometheus: by name.
type Given map[string]map[string]bool

// Metrics returns what the alerts and dashboards of scripts/observability name, but for what a rule makes and what Prometheus makes
// itself. It fails if an expression can't be parsed.
func Metrics(folder string) (Used, error) {
	used := Used{}
	observability := filepath.Join(folder, "scripts", "observability")
	if err := used.rules(filepath.Join(observability, "prometheus", "rules.yml")); err != nil {
		return nil, err
	}
	dashboards, err := filepath.Glob(filepath.Join(observability, "grafana", "dashboards", "*.json"))
	if err != nil || len(dashboards) == 0 {
		return nil, fmt.Errorf("no dashboards: %w", err)
	}
	for _, path := range dashboards {
		if err := used.dashboard(path); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	delete(used, "up")
	return used, nil
}

// rules reads alerts as Prometheus does, with the templates of their annotations.
func (u Used) rules(path string) error {
	groups, errs := rulefmt.ParseFile(path, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		return errs[0]
	}
	var recorded []string
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			name := rule.Alert + rule.Record
			if err := u.expression(name, rule.Expr); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if rule.Record != "" {
				recorded = append(recorded, rule.Record)
			}
		}
	}
	for _, name := range recorded {
		delete(u, name)
	}
	return nil
}

// dashboard is the part of Grafana's model that names metrics.
type dashboard struct {
	Panels []struct {
		Title   string `json:"title"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
}

// labelValues is the query of a variable: the values of a metric's label.
var labelValues = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)

func (u Used) dashboard(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	for _, panel := range d.Panels {
		if len(panel.Targets) == 0 {
			return fmt.Errorf("panel %q shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			// Grafana puts durations in the place of these.
			expr := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$__interval", "10s").Replace(target.Expr)
			if err := u.expression(filepath.Base(path)+": "+panel.Title, expr); err != nil {
				return fmt.Errorf("panel %q: %w", panel.Title, err)
			}
		}
	}
	for _, variable := range d.Templating.List {
		parts := labelValues.FindStringSubmatch(variable.Definition)
		if parts == nil {
			return fmt.Errorf("variable %s: %q is not read here", variable.Name, variable.Definition)
		}
		u.add(filepath.Base(path)+": variable "+variable.Name, parts[1], parts[2])
	}
	return nil
}

// expression notes each metric with the labels that it is selected by, and those that aggregations around it keep or drop.
func (u Used) expression(where, expr string) error {
	root, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return fmt.Errorf("%q: %w", expr, err)
	}
	parser.Inspect(root, func(node parser.Node, path []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		var labels []string
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != "__name__" {
				labels = append(labels, matcher.Name)
			}
		}
		for _, around := range path {
			if aggregation, is := around.(*parser.AggregateExpr); is {
				labels = append(labels, aggregation.Grouping...)
			}
		}
		u.add(where, selector.Name, labels...)
		return nil
	})
	return nil
}

func (u Used) add(where, metric string, labels ...string) {
	use := u[metric]
	if use == nil {
		use = &Use{Labels: map[string]bool{}}
		u[metric] = use
	}
	if !slices.Contains(use.Where, where) {
		use.Where = append(use.Where, where)
	}
	for _, label := range labels {
		use.Labels[label] = true
	}
}

// Missing lists what is used and not given. The labels replica and job come from prometheus.yml; error_type is there after an error.
func (u Used) Missing(given Given) []string {
	var missing []string
	for _, metric := range slices.Sorted(maps.Keys(u)) {
		labels, found := given[metric]
		if !found {
			missing = append(missing, fmt.Sprintf("%s, for %s", metric, strings.Join(u[metric].Where, "; ")))
			continue
		}
		for _, label := range slices.Sorted(maps.Keys(u[metric].Labels)) {
			if !labels[label] && !slices.Contains([]string{"replica", "job", "error_type"}, label) {
				missing = append(missing, fmt.Sprintf("label %s of %s, for %s", label, metric, strings.Join(u[metric].Where, "; ")))
			}
		}
	}
	return missing
}

// sample is a line of the text format, label the beginning of one of its labels.
var (
	sample = regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? `)
	label  = regexp.MustCompile(`(?:^|,)(\w+)="(?:[^"\\]|\\.)*"`)
)

// Add notes the metrics of an exposition in the text format of Prometheus.
func (g Given) Add(exposition string) {
	for line := range strings.Lines(exposition) {
		parts := sample.FindStringSubmatch(line)
		if parts == nil {
			continue // a comment
		}
		if g[parts[1]] == nil {
			g[parts[1]] = map[string]bool{}
		}
		for _, l := range label.FindAllStringSubmatch(parts[2], -1) {
			g[parts[1]][l[1]] = true
		}
	}
}
