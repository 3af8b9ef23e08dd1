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
	b.WriteString("## Headers\n\nCarryover reads these of a client; known front ends and agents have [names of their own](clients.md#how-a-request-names-its-conversation).\n\n")
	terms(b, "header", requestHeaders())
	b.WriteString("Carryover adds these to answers.\n\n")
	terms(b, "header", answerHeaders())
	b.WriteString("## Reasons of a miss\n\n`reason` in `X-KV-Reuse`, in the line of the turn and in `carryover_turns_total`.\n\n")
	terms(b, "reason", record.MissReasons())
	b.WriteString("`ineligible_<why>`: the request can take no part, or its ids can't be compared. `<why>` is one of these, or a word of [what became of a ticket](#what-became-of-a-ticket).\n\n")
	terms(b, "why", record.IneligibleReasons())
	b.WriteString("## Hits that saved nothing\n\n`reason` behind `hit`, and of turns with this outcome in `carryover_turns_total`.\n\n")
	terms(b, "reason", record.EmptyHits())
	b.WriteString("## Reasons why decode serves alone\n\n`reason` behind `decode_only` in `X-KV-Path`.\n\n")
	terms(b, "reason", record.AloneReasons())
	b.WriteString("## What became of a ticket\n\n`stored` in the line of the turn, `result` of `carryover_tickets_total`. Reasons of a miss that hold for the answer, too, stand there.\n\n")
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
	b.WriteString("## Settings\n\nEach is a flag, an environment variable and a key of the YAML file that `--config` (`CARRYOVER_CONFIG`) names. Flags win over the environment, which wins over the\n" +
		"file. `carryover check-config --print` shows all with their effective values. **R** marks what a reload (`SIGHUP`, `POST /admin/reload`) can change.\n" +
		"OpenTelemetry's variables are in [operating](operating.md#traces-and-otlp).\n\n")
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
	fmt.Fprintf(b, "\n### Instances in the file\n\n`prefill` and `decode` are lists there, whose entries have `url` and, where they want, ")
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
			{"GET /readyz", "200 once an instance of each role has answered, or decode alone, which says `decode_only`; else 503 `starting` or `draining`. With the state of Redis and the number of prefill instances under quarantine"},
			{"GET /version", "the version"},
		}, [][2]string{
			{"GET /admin/instances", "each instance: state and why, load, speed, models, incarnation, pinned tokens and their budget"},
			{"POST /admin/instances", "adds an instance, with `--discovery-registration`"},
			{"DELETE /admin/instances/{role}/{name}", "removes one that was added so"},
			{"POST /admin/instances/{role}/{name}/drain", "nothing new goes there; its turns go on to their end, and what tickets pin on a decode instance is handed back or released within seconds. `shared` in the answer: at all replicas of this Redis, until it is taken back; else at this replica, until it is restarted ([recipe](operating.md#take-a-node-out))"},
			{"POST /admin/instances/{role}/{name}/undrain", "takes that back, likewise"},
			{"POST /admin/reload", "reads the configuration again, as `SIGHUP` does; 422 says what is wrong with it, and nothing has changed then. A file that is empty, or names no instances of a role that had some at the start, is wrong"},
			{"GET /admin/events", "what has happened: quarantines, pairs left alone, drains, reloads, restarts of engines, outages of Redis; the last 100, newest first"},
			{"GET /admin/log-level", "the level of the log, `{\"level\": \"info\"}`"},
			{"PUT /admin/log-level", "changes it to `debug`, `info`, `warn` or `error` until the next reload; the body is as the answer to `GET`"},
			{"GET /metrics", "metrics for Prometheus"},
			{"GET /health", "as at the listener for clients, without a token"},
			{"GET /healthz", "likewise"},
			{"GET /readyz", "likewise"},
			{"GET /admin/turns", "records of the last turns, newest first, 100 unless `?limit=N` says otherwise; this replica keeps 4,096. With `failed=true`, `status=502` or `5xx`, `instance=NAME` (a leg was its, or it is to `blame`), `since=15m` and `until=TIME` (when the turn ended: a span ago, or RFC 3339) only those that all of them want"},
			{"GET /admin/conversations/{hash}", "those of one conversation, and the tickets that this replica has put into the store for it"},
			{"POST /admin/conversations/search", "the conversations whose turns had a client's id, `{\"id\": \"…\"}`; the id is hashed and forgotten"},
			{"GET /debug/pprof/profile", "a CPU profile (`?seconds=20`) for `go tool pprof`, behind the admin token; it holds nothing of a client"},
			{"GET /debug/pprof/{name}", "`heap`, `allocs` or `goroutine`, likewise"},
			{"GET /admin/live", "events, one per second, with what the page shows; 16 may look on at once"},
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
	b.WriteString("## Endpoints\n\nOf the listener for clients (`--host`, `--port`). `GET` and `HEAD /` say what this is; nothing else is served, and no other path reaches an engine.\n\n")
	endpoints(t, b, clients, served)
	b.WriteString("Of the [listener for operators](operating.md#the-listener-for-operators) (`--admin-listen`). `GET /` is the page.\n\n")
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
