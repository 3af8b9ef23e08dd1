package e2e

import (
	"fmt"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"carryover/server"
	"carryover/server/record"
	reads "carryover/server/request"
	"carryover/server/telemetry"
	"carryover/upstream/body"
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

// requestHeaders returns the headers of a client that Carryover reads, besides those of HTTP and of known front ends and agents.
func requestHeaders() []record.Term {
	return []record.Term{
		{Name: "X-Conversation-Id", Means: "names the conversation; so does X-Session-Id"},
		{Name: "X-KV-Reuse", Means: "`off`: this request neither looks for KV nor leaves any"},
		{Name: reads.TaskHeader, Means: "any value: the request is a task of the front end, such as a title; same effect as `X-KV-Reuse: off`"},
		{Name: reads.FinalHeader, Means: "`true`: no turn follows, and decode frees all blocks of the conversation; without an id, only the blocks of this turn's ticket"},
		{Name: "X-Request-Id", Means: "the name of the turn in the log; Carryover makes one if it is missing"},
		{Name: "Authorization", Means: "tells tenants apart, unless `--tenant-header` does; goes on with `--forward-authorization`"},
		{Name: "X-Api-Key", Means: "the same, as Anthropic's clients send it"},
		{Name: reads.PrefillerHeader, Means: "names the prefill instance, with `--prefiller-allow`"},
		{Name: "traceparent", Means: "the trace to which the turn's spans belong; with tracestate"},
	}
}

// answerHeaders returns the headers that Carryover adds to answers.
func answerHeaders() []record.Term {
	return []record.Term{
		{Name: "X-KV-Reuse", Means: "`hit;tokens=…;read=…;age=…;proof=…;confirmed=…`, with `;reason=…` if it saved nothing; `prefix;tokens=…;reason=…` (no hit, but prefill's own caches had `tokens` of the prompt, at least one block), `miss;reason=…` or `off`"},
		{Name: "X-KV-Path", Means: "`" + record.WayPrefillDecode + ";tokens=…` or `" + record.WayDecodeOnly + ";reason=…;tokens=…`"},
		{Name: "Server-Timing", Means: "`queue`, `lookup`, `prefill`, and `ttft` of a stream or `answer` of a whole answer, in milliseconds"},
		{Name: "X-Request-Id", Means: "the name of the turn in the log; on `" + body.Messages.Path() + "` also as `request-id`"},
		{Name: "Keep-Alive", Means: "how long the connection stays open between two requests, unless connections are scarce"},
		{Name: "Retry-After", Means: "seconds, on 429 and 503"},
	}
}
