package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// scripted is a program whose turns are counted, with one instance of each role.
type scripted struct {
	*rig
	turns int
	// What decode has counted in the answers.
	prompts, completions, cached float64
}

// say sends a turn, and returns its answer when its record has been observed.
func (s *scripted) say(ctx context.Context, t *testing.T, members object, header http.Header) *answered {
	t.Helper()
	s.turns++
	name := fmt.Sprint("turn-", s.turns)
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("X-Request-Id", name)
	a, err := s.post(ctx, "/v1/chat/completions", header, encode(members), unwatched)
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	s.rig.turns.await(t, name)
	if a != nil {
		usage := gjson.Parse(a.usage)
		s.prompts += usage.Get("prompt_tokens").Float()
		s.completions += usage.Get("completion_tokens").Float()
		s.cached += usage.Get("prompt_tokens_details.cached_tokens").Float()
	}
	return a
}

// scrape asks the admin listener. Instances are called p and d.
func (s *scripted) scrape(t *testing.T) scraped {
	t.Helper()
	status, body := s.operate(t, http.MethodGet, "/metrics", nil)
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, body)
	}
	text := string(body)
	for name, instance := range map[string]*vllmsim.Instance{"p": s.prefill[0], "d": s.decode[0]} {
		text = strings.ReplaceAll(text, strings.TrimPrefix(instance.URL(), "http://"), name)
	}
	return readScrape(t, text)
}

// grown is what has changed of series, and what is new.
func grown(before, after map[string]float64) map[string]float64 {
	changed := map[string]float64{}
	for name, value := range after {
		if value != before[name] {
			changed[name] = value - before[name]
		}
	}
	return changed
}

// wantSeries compares series one by one.
func wantSeries(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: got %v, want %v", name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, found := want[name]; !found {
			t.Errorf("%s: got %v, want none", name, got[name])
		}
	}
}

// asStream is a request for a stream with its usage.
func asStream(members object) object {
	members["stream"], members["stream_options"] = true, object{"include_usage": true}
	return members
}

func TestMetrics_OfAScriptedScenario(t *testing.T) {
	s := &scripted{rig: startRig(t, rigConfig{
		admin: true, cfg: engineWith(`{"output_token_ids":true,"prompt_tokens_details":true}`), redis: redistest.Start(t).Addr(), flags: []string{"--release", "on"},
	})}
	s.proxy.Fleet.Catalogue.Refresh(t.Context())
	wantFamilies(t, s.scrape(t), "start", "redis")
	ctx := t.Context()
	chat := func(id string, messages ...json.RawMessage) object {
		members := object{"model": "sim", "max_tokens": 400, "messages": messages}
		if id != "" {
			members["conversation_id"] = id
		}
		return members
	}
	want := func(what string, a *answered, status int, reuse string) *answered {
		t.Helper()
		if a.status != status || !strings.HasPrefix(noHit(a.reuse()), reuse) {
			t.Fatalf("%s: %d %q %s, want %d %s", what, a.status, a.reuse(), a.raw, status, reuse)
		}
		return a
	}
	warm := speech{}
	for n := range 8 {
		warm = append(warm, says(n))
		a := s.say(ctx, t, chat("warm", warm...), nil)
		warm = append(warm, a.assistant())
		if a.hit() {
			break
		}
	}
	// What the warm conversation has displaced rides on this one.
	s.say(ctx, t, chat("warm", question("SAY something else.")), nil)
	before := s.scrape(t)
	s.prompts, s.completions, s.cached = 0, 0, 0

	first := says(20)
	one := want("first turn", s.say(ctx, t, chat("a", first), nil), 200, "miss;reason=first_turn")
	history := speech{first, one.assistant(), says(21)}
	hit := want("second turn", s.say(ctx, t, asStream(chat("a", history...)), nil), 200, "hit;")
	history[0] = question("SAY something else, at " + longText(23))
	want("rewritten", s.say(ctx, t, asStream(chat("a", history...)), nil), 200, "miss;reason=history_rewritten")
	want("no conversation", s.say(ctx, t, chat("", question("SAY one.")), nil), 200, "miss;reason=no_conversation")
	want("release rides", s.say(ctx, t, chat("", question("SAY two."), one.assistant(), question("SAY more.")), nil), 200, "miss;reason=no_conversation")
	want("off", s.say(ctx, t, chat("", question("SAY three.")), http.Header{"X-KV-Reuse": {"off"}}), 200, "off")
	several := chat("n", question("SAY four."))
	several["n"] = 2
	want("decode alone", s.say(ctx, t, several, nil), 200, "miss;reason=ineligible_n")
	want("malformed", s.say(ctx, t, object{"model": 1}, nil), 400, "miss;reason=bypass")
	fault := func(instance *vllmsim.Instance, count int) {
		t.Helper()
		noError(t, instance.SetFault(vllmsim.Fault{Kind: vllmsim.FaultStatus, Status: 502, Route: "/v1/chat/completions", Count: count}))
	}
	fault(s.decode[0], 1)
	want("retried", s.say(ctx, t, chat("r", question("SAY five.")), nil), 200, "miss;reason=")
	s.settle(t)
	fault(s.decode[0], 2)
	want("failed", s.say(ctx, t, chat("r2", question("SAY six.")), nil), 502, "miss;reason=")
	s.settle(t)
	leaving, leave := context.WithCancel(ctx)
	s.between.act(func(turn context.Context) {
		leave()
		<-turn.Done()
	})
	s.say(leaving, t, chat("g", question("SAY seven.")), nil)
	s.settle(t)
	after := s.scrape(t)
	got := grown(before.own("carryover_", "http_", "gen_ai_"), after.own("carryover_", "http_", "gen_ai_"))
	maps.DeleteFunc(got, func(name string, _ float64) bool { // the engines' own words at their last reading, which may fall into the script
		gauge, _, _ := strings.Cut(name, "{")
		return slices.Contains([]string{"carryover_instance_kv_usage_ratio", "carryover_instance_running", "carryover_instance_waiting", "carryover_prompt_tokens_total"}, gauge)
	})
	wantSeries(t, got, s.expected(t, hit, before))
	wantFamilies(t, after, "start", "redis", "later")
	if saved := after.sum("carryover_prefill_saved_seconds_total") - before.sum("carryover_prefill_saved_seconds_total"); saved <= 0 || saved > 60 {
		t.Errorf("prefill is said to have saved %v s", saved)
	}
	grew := func(family string) float64 { return after.sum(family) - before.sum(family) }
	if prompts := grew("carryover_prompt_tokens_total"); prompts != s.prompts {
		t.Errorf("%v tokens of prompts are counted, want %v", prompts, s.prompts)
	}
	with, without, saved := grew("carryover_reuse_ttft_seconds_sum"), grew("carryover_reuse_ttft_without_seconds_sum"), grew("carryover_prefill_saved_seconds_total")
	if math.Abs(without-with-saved) > 1e-9 || with <= 0 {
		t.Errorf("the hit took %v s to its first token, %v s without reuse, and has saved %v s", with, without, saved)
	}
	if up := after.sum("carryover_redis_up"); up != 1 {
		t.Errorf("carryover_redis_up: got %v, want 1", up)
	}
	if waiting := s.waiting(); waiting < 2 || waiting > 3 { // a leg that is tried again may carry what the rescue before it has left
		t.Errorf("decode pins %d answers that are no tickets, want two or three", waiting)
	}
	s.verifyReads(t)
}

// waiting is how many answers that are no tickets decode pins until they are released.
func (s *scripted) waiting() int { return s.decode[0].Stats().Pins - s.proxy.Server.Counts().Tickets }

// settle waits until decode has read all that was handed over, and the program has heard of it.
func (s *scripted) settle(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool {
		total := s.sum("")
		return total["leased_pins"] == 0 && total["running"] == 0 && s.toldPinned(t)
	}) {
		t.Fatal("decode has not read what was handed over")
	}
}

// expected are all series that the script changes, of which nothing but times is left out. What engines count is taken from them.
func (s *scripted) expected(t *testing.T, hit *answered, before scraped) map[string]float64 {
	t.Helper()
	if !testrig.Eventually(func() bool { return s.sum("")["running"] == 0 }) {
		t.Fatal("requests still run")
	}
	offered := float64(offeredBy(hit))
	_, held := s.pinned(t)
	want := map[string]float64{
		`carryover_turns_total{follow_up="true",outcome="hit",path="prefill_decode",reason="none"}`:               1,
		`carryover_turns_total{follow_up="false",outcome="off",path="prefill_decode",reason="none"}`:              1,
		`carryover_turns_total{follow_up="false",outcome="miss",path="prefill_decode",reason="first_turn"}`:       4, // a, and those of faults
		`carryover_turns_total{follow_up="true",outcome="miss",path="prefill_decode",reason="history_rewritten"}`: 1,
		`carryover_turns_total{follow_up="false",outcome="miss",path="prefill_decode",reason="no_conversation"}`:  1,
		`carryover_turns_total{follow_up="true",outcome="miss",path="prefill_decode",reason="no_conversation"}`:   1, // the one that rides goes on
		`carryover_turns_total{follow_up="false",outcome="miss",path="decode_only",reason="ineligible_n"}`:        1,
		`carryover_turns_total{follow_up="false",outcome="miss",path="none",reason="bypass"}`:                     1,
		`carryover_turns_id_source_total{follow_up="true",id_source="conversation_id",outcome="hit"}`:             1,
		`carryover_turns_id_source_total{follow_up="true",id_source="conversation_id",outcome="miss"}`:            1,
		`carryover_turns_id_source_total{follow_up="false",id_source="conversation_id",outcome="miss"}`:           5, // the first turns, and n
		`carryover_turns_id_source_total{follow_up="true",id_source="none",outcome="miss"}`:                       1,
		`carryover_turns_id_source_total{follow_up="false",id_source="none",outcome="miss"}`:                      2, // the malformed one has none
		`carryover_turns_id_source_total{follow_up="false",id_source="none",outcome="off"}`:                       1,
		`carryover_turn_ttft_seconds_count{path="prefill_decode"}`:                                                2, // the two streams
		`carryover_turn_answer_seconds_count{path="prefill_decode"}`:                                              5, // without the one that failed and the one that left
		`carryover_turn_answer_seconds_count{path="decode_only"}`:                                                 1,
		`carryover_reuse_ttft_seconds_count`:                                                                      1,
		`carryover_reuse_ttft_without_seconds_count`:                                                              1,
		`carryover_turn_queue_seconds_count`:                                                                      11,
		`carryover_reuse_tokens_offered_total{proof="tokens"}`:                                                    offered,
		`carryover_reuse_tokens_read_total{proof="tokens"}`:                                                       float64(readOf(hit)),
		`carryover_reuse_tokens_confirmed_total{role="prefill"}`:                                                  offered,
		`carryover_reuse_tokens_confirmed_total{role="decode"}`:                                                   s.cached,
		`carryover_tickets_total{result="yes"}`:                                                                   4,
		`carryover_tickets_total{result="no_conversation"}`:                                                       3,
		`carryover_tickets_total{result="ineligible_n"}`:                                                          1,
		`carryover_ticket_choices_total{choice="ticket"}`:                                                         4,
		`carryover_tickets_held`:  3, // four, of which one was taken
		`carryover_retries_total`: 2,
		`carryover_leg_duration_seconds_count{instance="p",role="prefill"}`:                    11,
		`carryover_leg_duration_seconds_count{instance="d",role="decode"}`:                     8,
		`carryover_leg_duration_seconds_count{error_type="status",instance="d",role="decode"}`: 3,
		`carryover_releases_total{by="piggybacked",result="sent"}`:                             float64(7 - s.waiting()), // of 3 without conversation and 4 rescues
		`carryover_store_operation_duration_seconds_count{operation="peek",outcome="empty"}`:   4,
		`carryover_store_operation_duration_seconds_count{operation="peek",outcome="found"}`:   2,
		`carryover_store_operation_duration_seconds_count{operation="take",outcome="taken"}`:   1,
		`carryover_store_operation_duration_seconds_count{operation="put",outcome="stored"}`:   4,
		`carryover_pinned_tokens{instance="d"}`:                                                float64(held) - before.sum("carryover_pinned_tokens"),
	}
	for status, n := range map[string]float64{"200": 8, "400": 1, "499": 1, "502": 1} {
		failure := map[string]string{"499": `error_type="client_gone",`, "502": `error_type="decode_failed",`}[status]
		want[`http_server_request_duration_seconds_count{`+failure+`http_request_method="POST",http_response_status_code="`+status+
			`",http_route="/v1/chat/completions",url_scheme="http"}`] = n
	}
	const chat = `gen_ai_operation_name="chat",gen_ai_provider_name="vllm",gen_ai_request_model="sim"`
	want[`gen_ai_server_request_duration_seconds_count{`+chat+`}`] = 8
	for _, failure := range []string{"client_gone", "decode_failed"} {
		want[`gen_ai_server_request_duration_seconds_count{error_type="`+failure+`",`+chat+`}`] = 1
	}
	want[`gen_ai_server_time_to_first_token_seconds_count{`+chat+`}`] = 2
	want[`gen_ai_server_time_per_output_token_seconds_count{`+chat+`}`] = 2
	for kind, tokens := range map[string]float64{"input": s.prompts, "output": s.completions} {
		want[`gen_ai_client_token_usage_count{`+chat+`,gen_ai_token_type="`+kind+`"}`] = 8
		want[`gen_ai_client_token_usage_sum{`+chat+`,gen_ai_token_type="`+kind+`"}`] = tokens
	}
	return want
}
