package e2e

import (
	"fmt"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"carryover/server"
	"carryover/server/telemetry"
)

// recordedMetrics returns what each family of /metrics is for, by its name there: a view is shown each instrument.
func recordedMetrics(t *testing.T) map[string]string {
	t.Helper()
	means := map[string]string{}
	m, err := telemetry.NewMetrics(sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()), sdk.WithView(func(i sdk.Instrument) (s sdk.Stream, match bool) {
		family := strings.ReplaceAll(i.Name, ".", "_") + map[string]string{"s": "_seconds", "By": "_bytes", "1": "_ratio"}[i.Unit]
		means[family], means[family+"_total"] = i.Description, i.Description
		return s, false
	})))
	noError(t, err)
	noError(t, m.Watch(telemetry.State{Store: m.Store(nil), Server: func() *server.Server { return nil }, Redis: func() string { return "" }}))
	return means
}

func referenceMetrics(t *testing.T, b *strings.Builder) {
	t.Helper()
	b.WriteString("## Metrics\n\n`GET /metrics` at the listener for operators also has the metrics of Go and of the process (`go_…`, `process_…`). No label has data of a client.\n" +
		"[Monitoring](monitoring.md#metrics) says how to scrape them, and what labels mean.\n\n" +
		"| metric | kind | labels | |\n|---|---|---|---|\n")
	means := recordedMetrics(t)
	for _, f := range listedFamilies(t) {
		what, found := means[f.name]
		if !found || what == "" {
			t.Errorf("no instrument says what %s is for", f.name)
		}
		labels := ""
		if f.labels != "-" {
			labels = "`" + strings.ReplaceAll(f.labels, ",", "`, `") + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s%s |\n", f.name, f.kind, labels, cell(what), map[string]string{"redis": " Only with Redis."}[f.appears])
	}
}
