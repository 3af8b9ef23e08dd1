package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/cli"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server/admin"
	"carryover/server/journal"
	"carryover/server/record"
)

const referenceFile = "../../../docs/reference.md"

var update = flag.Bool("update", false, "write docs/reference.md anew")

// TestReference_IsThatOfTheCode makes docs/reference.md out of the settings, the words that the server says, the endpoints that a
// running program lists, and the instruments of its metrics. make reference writes it.
func TestReference_IsThatOfTheCode(t *testing.T) {
	made := reference(t)
	if *update {
		noError(t, os.WriteFile(referenceFile, []byte(made), 0o644))
		return
	}
	kept, err := os.ReadFile(referenceFile)
	noError(t, err)
	if string(kept) == made {
		return
	}
	was, is := strings.Split(string(kept), "\n"), strings.Split(made, "\n")
	for i := range max(len(was), len(is)) {
		if i >= len(was) || i >= len(is) || was[i] != is[i] {
			t.Fatalf("docs/reference.md is stale from line %d on, make reference writes it anew. It has\n%q\nwant\n%q", i+1, was[min(i, len(was)-1)], is[min(i, len(is)-1)])
		}
	}
}

func reference(t *testing.T) string {
	t.Helper()
	b := &strings.Builder{}
	b.WriteString(`<!-- Made of the code by make reference. Do not edit: change the code, and make it again. -->

# Reference

[Settings](#settings) · [endpoints](#endpoints) · [headers](#headers) · [reasons of a miss](#reasons-of-a-miss) · [why decode serves
alone](#reasons-why-decode-serves-alone) · [what became of a ticket](#what-became-of-a-ticket) · [error codes](#error-codes) · [metrics](#metrics)

`)
	referenceSettings(t, b)
	referenceEndpoints(t, b)
	b.WriteString("## Headers\n\nCarryover reads these headers of requests, and [headers of known front ends and agents](clients.md#how-a-request-names-its-conversation).\n\n")
	terms(b, "header", requestHeaders())
	b.WriteString("Carryover adds these headers to answers.\n\n")
	terms(b, "header", answerHeaders())
	b.WriteString("## Reasons of a miss\n\n`reason` in `X-KV-Reuse`, in the line of the turn and in `carryover_turns_total`.\n\n")
	terms(b, "reason", record.MissReasons())
	b.WriteString("`ineligible_<why>`: the request cannot take part, or its ids cannot be compared. `<why>` is one of these, or a word of [what became of a ticket](#what-became-of-a-ticket).\n\n")
	terms(b, "why", record.IneligibleReasons())
	b.WriteString("## Hits that saved nothing\n\n`reason` after `hit` in `X-KV-Reuse`, and in `carryover_turns_total`.\n\n")
	terms(b, "reason", record.EmptyHits())
	b.WriteString("## Reasons why decode serves alone\n\n`reason` after `decode_only` in `X-KV-Path`.\n\n")
	terms(b, "reason", record.AloneReasons())
	b.WriteString("## What became of a ticket\n\n`stored` in the line of the turn, and `result` of `carryover_tickets_total`. Both also have reasons of a miss that hold for the answer.\n\n")
	terms(b, "result", record.StoredResults())
	b.WriteString("## Error codes\n\n`error.code` of an answer, and `code` in the line of the turn. Messages have Anthropic's shape on `/v1/messages`, which has no code.\n\n| code | status | means |\n|---|---|---|\n")
	for _, c := range testrig.Codes() {
		status := "the engine's"
		if c.Status != 0 {
			status = strconv.Itoa(c.Status)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", c.Name, status, c.Means)
	}
	b.WriteString("\n")
	referenceMetrics(t, b)
	return b.String()
}

// terms writes a table of words. What is to be done has a column where there is anything.
func terms(b *strings.Builder, what string, all []record.Term) {
	does := slices.ContainsFunc(all, func(term record.Term) bool { return term.Do != "" })
	fmt.Fprintf(b, "| %s | means |%s\n|---|---|%s\n", what, map[bool]string{true: " what to do |"}[does], map[bool]string{true: "---|"}[does])
	for _, term := range all {
		fmt.Fprintf(b, "| `%s` | %s |", term.Name, cell(term.Means))
		if does {
			fmt.Fprintf(b, " %s |", cell(term.Do))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// cell is a text as a table of Markdown takes it.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "<", `\<`)
}

func referenceSettings(t *testing.T, b *strings.Builder) {
	t.Helper()
	b.WriteString("## Settings\n\nEach setting is a flag, an environment variable and a key of the YAML file that `--config` (`CARRYOVER_CONFIG`) names. Flags win over the environment, the\n" +
		"environment wins over the file. `carryover check-config --print` shows all effective values. A reload (`SIGHUP`, `POST /admin/reload`) can change settings with **R**.\n" +
		"[Monitoring](monitoring.md#traces-and-otlp) lists OpenTelemetry's variables.\n\n")
	serve := cli.NewRootCommand(nil, func(_ context.Context, _ app.Configured, _ io.Writer) error { return nil })
	cfg := config.Default()
	section := ""
	for _, s := range config.Settings(&cfg) {
		if s.Section() != section {
			b.WriteString(map[bool]string{true: "\n"}[section != ""])
			section = s.Section()
			fmt.Fprintf(b, "### %s\n\n| key | flag, variable | default | |\n|---|---|---|---|\n", section)
		}
		names, standard := "", ""
		if s.Flag != "" {
			f := serve.Flags().Lookup(s.Flag)
			if f == nil {
				t.Fatalf("no flag --%s", s.Flag)
			}
			names, standard = "`--"+s.Flag+"` ", f.DefValue
		}
		if v := s.Variable(); v != "" {
			names += "`" + v + "`"
		}
		if standard != "" {
			standard = "`" + standard + "`"
		}
		help := cell(s.Usage())
		if s.Live {
			help += " **R**"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.Key, strings.TrimSpace(names), standard, help)
	}
	fmt.Fprintf(b, "\n### Instances in the file\n\n`prefill` and `decode` are lists. An entry has `url`, and optionally ")
	var members []string
	for _, role := range []string{config.RolePrefill, config.RoleDecode} {
		for _, s := range config.InstanceSettings(role, 0, &config.InstanceConfig{}) {
			if name := "`" + s.Name() + "`"; s.Name() != "url" && !slices.Contains(members, name) {
				members = append(members, name)
			}
		}
	}
	fmt.Fprintf(b, "%s.\n\n", strings.Join(members, ", "))
}

// described are the endpoints of both listeners, as the program itself lists them.
func described() (clients, operators [][2]string) {
	return [][2]string{
			{"POST /v1/chat/completions", "a turn"},
			{"POST /v1/completions", "a turn"},
			{"POST /v1/messages", "a turn, as Anthropic's clients send it"},
			{"POST /v1/messages/count_tokens", "tokens of such a request"},
			{"POST /v1/responses", "a turn; nothing is stored"},
			{"GET /v1/models", "models of all instances"},
			{"GET /health", "as vLLM's example answers, with `cached_conversations` and `evicted_stale`"},
			{"GET /healthz", "200 while the process lives"},
			{"GET /readyz", "200 once an instance of each role, or decode alone (`decode_only`), has answered; else 503 `starting` or `draining`. Also the state of Redis and the number of quarantined prefill instances"},
			{"GET /version", "the version"},
		}, [][2]string{
			{"GET /admin/instances", "each instance: state and why, load, speed, models, incarnation, pinned tokens and their budget"},
			{"POST /admin/instances", "adds an instance, with `--discovery-registration`"},
			{"DELETE /admin/instances/{role}/{name}", "removes one that was added so"},
			{"POST /admin/instances/{role}/{name}/drain", "[takes an instance out](operating.md#take-a-node-out): it gets nothing new, its turns finish, and its tickets are handed back or released. `shared` in the answer says whether all replicas follow"},
			{"POST /admin/instances/{role}/{name}/undrain", "takes it back"},
			{"POST /admin/reload", "reads the configuration again, as `SIGHUP` does. On 422 nothing has changed, and the answer names the fault. A file that is empty, or lacks a role that had instances at the start, is a fault"},
			{"GET /admin/events", "the last 100 events, newest first: quarantines, pairs left alone, drains, reloads, restarts of engines, outages of Redis"},
			{"GET /admin/log-level", "the level of the log, `{\"level\": \"info\"}`"},
			{"PUT /admin/log-level", "changes it to `debug`, `info`, `warn` or `error` until the next reload; the body has the form of the answer to `GET`"},
			{"GET /metrics", "metrics for Prometheus"},
			{"GET /health", "as at the listener for clients, without a token"},
			{"GET /healthz", "likewise"},
			{"GET /readyz", "likewise"},
			{"GET /admin/turns", "records of the last turns, newest first: 100, or `?limit=N`; this replica keeps 4,096. Filters, all of which must match: `failed=true`, `status=502` or `5xx`, `instance=NAME` (it had a leg, or is to `blame`), `since=15m` and `until=TIME` (end of the turn: a span ago, or RFC 3339)"},
			{"GET /admin/conversations/{hash}", "records of one conversation, and the tickets that this replica stored for it"},
			{"POST /admin/conversations/search", "the conversations whose turns had this id, `{\"id\": \"…\"}`; the id is hashed and forgotten"},
			{"GET /debug/pprof/profile", "a CPU profile (`?seconds=20`) for `go tool pprof`, behind the admin token; it holds nothing of a client"},
			{"GET /debug/pprof/{name}", "`heap`, `allocs` or `goroutine`, likewise"},
			{"GET /admin/live", "server-sent events with the data of the page, one per second; at most 16 readers"},
		}
}

func referenceEndpoints(t *testing.T, b *strings.Builder) {
	t.Helper()
	r := startRig(t, rigConfig{})
	_, welcome := r.get(t, r.base+"/")
	var served []string
	for _, e := range gjson.Get(welcome, "endpoints").Array() {
		served = append(served, e.String())
	}
	unasked := http.NotFoundHandler() // which nothing here asks
	unknown := httptest.NewRecorder()
	admin.New(admin.Deps{Journal: journal.New(journal.Config{}), Handlers: admin.Handlers{Metrics: unasked, Health: unasked}, LogLevel: &slog.LevelVar{}}).
		ServeHTTP(unknown, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/admin/nothing", nil))
	_, listed, _ := strings.Cut(gjson.GetBytes(unknown.Body.Bytes(), "error.message").String(), "Served are ")
	clients, operators := described()
	b.WriteString("## Endpoints\n\nThe listener for clients (`--host`, `--port`) serves these, and `GET` and `HEAD /`. No other path reaches an engine.\n\n")
	endpoints(t, b, clients, served)
	b.WriteString("The [listener for operators](monitoring.md#the-listener-for-operators) (`--admin-listen`) serves these, and the page at `GET /`.\n\n")
	endpoints(t, b, operators, strings.Split(strings.TrimSuffix(listed, "."), ", "))
}

func endpoints(t *testing.T, b *strings.Builder, described [][2]string, served []string) {
	t.Helper()
	b.WriteString("| endpoint | |\n|---|---|\n")
	for _, e := range served {
		at := slices.IndexFunc(described, func(d [2]string) bool { return d[0] == e })
		if at < 0 {
			t.Errorf("%s is served, and not described", e)
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", e, described[at][1])
		described = slices.Delete(described, at, at+1)
	}
	if len(described) > 0 {
		t.Errorf("not served: %v", described)
	}
	b.WriteString("\n")
}
