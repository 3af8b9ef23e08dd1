//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/doctor"
)

// freeLimit is how long decode may take until it holds nothing more of what nobody is to read: some hundredth of the time after
// which it would give it up by itself (decoder_kv_blocks_ttl, 480 s).
const freeLimit = 10 * time.Second

// operators is line 9: what operators are shown of real engines.
func (s *suite) operators(t *testing.T) {
	t.Helper()
	s.report.line(t, "9", "doctor finds nothing wrong and leaves nothing", s.doctor)
	s.report.line(t, "9", "a turn is one trace", s.traced)
	s.report.line(t, "9", "metrics and records agree with the answers", s.metrics)
	s.report.line(t, "9", "the last turn leaves nothing in decode", s.lastTurns)
}

// freed waits until decode holds no more blocks than before.
func (s *suite) freed(t *testing.T, what string, before int) time.Duration {
	t.Helper()
	began := time.Now()
	now := 0
	if !inTime(freeLimit, func() bool { now = s.decode.counted(t).pinned; return now <= before }) {
		t.Errorf("%s: decode holds %d blocks after %s, %d before", what, now, freeLimit, before)
	}
	return time.Since(began)
}

func (s *suite) doctor(t *testing.T) string {
	held, asked := s.decode.counted(t), s.prefill.counted(t).requests
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, s.binary, "doctor", "--strict", "--all", "--prefill", s.prefill.url, "--decode", s.decode.url)
	cmd.Env = withoutTestNames(os.Environ()) // the program refuses names with its prefix that it does not know
	output, err := cmd.CombinedOutput()
	took := time.Since(began)
	t.Logf("%s", output)
	if err != nil {
		t.Errorf("doctor --strict: %v", err)
	}
	free := s.freed(t, "after the doctor", held.pinned)
	if now := s.prefill.counted(t).requests; now < asked+doctor.MaxProbeTurns {
		t.Errorf("prefill completed %d requests of the doctor, want at least %d", now-asked, doctor.MaxProbeTurns)
	}
	if now := s.decode.counted(t); now.expired != held.expired || now.failed != held.failed {
		t.Errorf("decode has given up %d requests and failed %d transfers, %d and %d before", now.expired, now.failed, held.expired, held.failed)
	}
	return fmt.Sprintf("in %s, decode as before after %s", seconds(took), seconds(free))
}

// watched is a program with a listener for operators in front of the pair.
type watched struct {
	*proxyProcess
	operators string // base URL
}

func (s *suite) watch(t *testing.T, prefillURL, decodeURL string, args ...string) *watched {
	t.Helper()
	return watch(t, s.binary, prefillURL, decodeURL, args...)
}

func watch(t *testing.T, binary, prefillURL, decodeURL string, args ...string) *watched {
	t.Helper()
	w := &watched{proxyProcess: launch(t, binary, prefillURL, decodeURL, append([]string{"--admin-listen", "127.0.0.1:0"}, args...)...)}
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	for _, line := range w.log.lines {
		if address := gjson.Get(line, "admin_address").String(); address != "" {
			w.operators = "http://" + address
			return w
		}
	}
	t.Fatal("the program does not say where it serves operators")
	return nil
}

// turns are the records of the turns that have ended, once there are so many.
func (w *watched) turns(t *testing.T, n int) (records []gjson.Result) {
	t.Helper()
	if !inTime(freeLimit, func() bool {
		_, body := askBare(t, w.client, http.MethodGet, w.operators+"/admin/turns?limit=1000", nil)
		records = gjson.Get(body, "turns").Array()
		return len(records) >= n
	}) {
		t.Fatalf("got %d records, want %d", len(records), n)
	}
	return records
}

// traced sends turns of a client that traces, with a collector behind the program.
func (s *suite) traced(t *testing.T) string {
	c := startCollector(t)
	for name, value := range map[string]string{"ENDPOINT": c.url, "PROTOCOL": "http/protobuf"} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
	}
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	prefill, decode := recordEngine(t, config.RolePrefill, s.prefill.url), recordEngine(t, config.RoleDecode, s.decode.url)
	w := s.watch(t, prefill.url, decode.url)
	var outcomes []string
	for n, k := range []dialogue{
		{name: "a traced echo", prompt: chatPrompt, faithful: true, stream: always, salted: true},
		{name: "a traced list", prompt: idsPrompt, faithful: true, stream: never, salted: true},
	} {
		dialogue := k.begin(s.prefill)
		for turn := 1; turn <= 3; turn++ {
			a, trace := dialogue.next(t, turn), traceOf(10*n+turn)
			want := s.alone(t, a)
			got, err := postWith(t, w.client, w.base, a, inTrace(trace))
			if err != nil || !got.right(want) {
				t.Fatalf("%s, turn %d: %v\n got %s\nwant %s", k.name, turn, err, got, want)
			}
			dialogue.remember(got)
			outcomes = append(outcomes, got.reuse.outcome)
			root, steps := c.of(t, trace, 6)
			if names := spanNames(steps); !slices.Equal(names, []string{"lookup", "prefill leg", "handover wait", "decode leg", "put"}) {
				t.Errorf("%s, turn %d: spans %q", k.name, turn, names)
			}
			wantAttributes(t, root, map[string]string{
				"http.response.status_code": "200", "gen_ai.request.model": model, "carryover.reuse.outcome": outcomes[len(outcomes)-1], "error.type": "",
				"gen_ai.usage.input_tokens": fmt.Sprint(want.promptTokens), "gen_ai.usage.output_tokens": fmt.Sprint(want.completionTokens),
			})
			if root.parent() != clientSpanID {
				t.Errorf("%s, turn %d: the turn is under %q, want the client's span", k.name, turn, root.parent())
			}
			for name, engine := range map[string]*recorder{"prefill leg": prefill, "decode leg": decode} {
				leg := one(t, steps, name, 0)
				wantAttributes(t, leg, map[string]string{"http.response.status_code": "200"})
				if got, want := tracedLegs(engine, trace), []string{"200 00-" + trace + "-" + leg.id() + "-01 vendor=x"}; !slices.Equal(got, want) {
					t.Errorf("%s, turn %d, %s: the engine got %q, want %q", k.name, turn, name, got, want)
				}
			}
		}
	}
	if !slices.Contains(outcomes, "hit") {
		t.Errorf("no traced turn was a hit: %q", outcomes)
	}
	return fmt.Sprintf("%d turns, %d of them hits, each one trace with its two legs", len(outcomes), countOf(outcomes, "hit"))
}

// tracedLegs are the completions of a trace that an engine was asked for: its status, and the context that it got.
func tracedLegs(engine *recorder, trace string) (legs []string) {
	for _, x := range engine.seen() {
		if strings.HasSuffix(x.path, "/completions") && strings.Contains(x.header.Get("Traceparent"), trace) {
			legs = append(legs, fmt.Sprint(x.status, " ", x.header.Get("Traceparent"), " ", x.header.Get("Tracestate")))
		}
	}
	return legs
}

func countOf(list []string, value string) (n int) {
	for _, item := range list {
		if item == value {
			n++
		}
	}
	return n
}

// watchedDialogues are conversations that have misses, hits of a ticket as a whole and of a part, and whose tokens are known or asked for.
func watchedDialogues() []dialogue {
	return []dialogue{
		{name: "a watched echo", prompt: chatPrompt, faithful: true, salted: true},
		{name: "a watched list", prompt: idsPrompt, faithful: true, maxTokens: readable, salted: true},
		{name: "a watched edit", prompt: chatPrompt, edit: changeFirst, salted: true},
	}
}

// metrics compares what the program counts with what its answers have said, and both with what the engines count.
func (s *suite) metrics(t *testing.T) string {
	w := s.watch(t, s.prefill.url, s.decode.url)
	want := map[string]float64{}
	for _, k := range watchedDialogues() {
		for _, o := range s.tell(t, k, w.proxyProcess) {
			o.got.wantRight(t, o.want, "%s (%s)", o, o.got.reuse.text)
			want["turns"]++
			want["prompt"] += float64(o.got.promptTokens)
			want["completion"] += float64(o.got.completionTokens)
			if !o.got.reuse.hit {
				_, reason, _ := strings.Cut(o.got.reuse.text, "reason=") // with what an unproven one adds
				want["miss "+reason]++
				continue
			}
			want["hits"]++
			want["offered"] += float64(o.got.reuse.tokens)
			want["read"] += float64(o.got.reuse.read)
			want["confirmed"] += float64(max(0, o.got.reuse.confirmed))
			if took := o.fromSource[cached] + o.fromSource[external]; !near(took, o.got.reuse.confirmed) {
				t.Errorf("%s: prefill took %d tokens from caches, the program says %d", o, took, o.got.reuse.confirmed)
			}
		}
	}
	if want["hits"] == 0 || want["hits"] == want["turns"] {
		t.Errorf("got %v hits of %v turns, want some of both", want["hits"], want["turns"])
	}
	records := map[string]float64{}
	for _, r := range w.turns(t, int(want["turns"])) {
		records["turns"]++
		records["prompt"] += r.Get("prompt_tokens").Float()
		records["completion"] += r.Get("completion_tokens").Float()
		if r.Get("outcome").String() != "hit" {
			records["miss "+r.Get("reason").String()]++
			continue
		}
		records["hits"]++
		records["offered"] += r.Get("tokens_offered").Float()
		records["read"] += r.Get("tokens_read").Float()
		records["confirmed"] += r.Get("tokens_confirmed").Float()
	}
	wantSeries(t, records, want)

	status, body := askBare(t, w.client, http.MethodGet, w.operators+"/metrics", nil)
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, body)
	}
	told := readScrape(t, body)
	got := map[string]float64{
		"turns": told.sum("carryover_turns_total"), "hits": told.sum("carryover_turns_total", `outcome="hit"`),
		"read":    told.sum("carryover_reuse_tokens_read_total"),
		"offered": told.sum("carryover_reuse_tokens_offered_total"), "confirmed": told.sum("carryover_reuse_tokens_confirmed_total", `role="prefill"`),
		"prompt":     told.sum("gen_ai_client_token_usage_sum", `gen_ai_token_type="input"`),
		"completion": told.sum("gen_ai_client_token_usage_sum", `gen_ai_token_type="output"`),
	}
	for name := range want {
		if reason, found := strings.CutPrefix(name, "miss "); found {
			got[name] = told.sum("carryover_turns_total", `reason="`+reason+`"`)
		}
	}
	wantSeries(t, got, want)
	return fmt.Sprintf("%v turns, %v hits, %v tokens offered, %v confirmed", want["turns"], want["hits"], want["offered"], want["confirmed"])
}

// lastTurns ends conversations whose tickets decode holds.
func (s *suite) lastTurns(t *testing.T) string {
	w := s.watch(t, s.prefill.url, s.decode.url)
	var took, blocks []string
	for _, stream := range []func(int) bool{always, never} {
		held := s.decode.counted(t).pinned
		c := dialogue{name: "a last echo", prompt: chatPrompt, stream: stream, salted: true}.begin(s.prefill)
		for turn := 1; turn <= 2; turn++ {
			c.remember(w.ask(t, c.next(t, turn)))
		}
		holds := 0
		if !inTime(freeLimit, func() bool { // its metrics follow an answer by a moment
			holds = s.decode.counted(t).pinned - held
			return holds > 0
		}) {
			t.Error("decode holds nothing for the next turn")
		}
		blocks = append(blocks, fmt.Sprint(holds))
		a := c.next(t, 3)
		want := s.alone(t, a)
		got, err := postWith(t, w.client, w.base, a, http.Header{"X-Conversation-Final": {"true"}})
		if err != nil || !got.right(want) {
			t.Fatalf("the last turn: %v\n got %s\nwant %s", err, got, want)
		}
		took = append(took, seconds(s.freed(t, "after the last turn", held)))
	}
	return fmt.Sprintf("%s blocks before the last turn, none after %s", strings.Join(blocks, " and "), strings.Join(took, " and "))
}
