package lmcache

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/body"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// arrival is KV on its way, which a test has come.
type arrival struct {
	id     string
	count  int
	ready  func(context.Context) error
	closed int
}

func (a *arrival) Ready(ctx context.Context) error { return a.ready(ctx) }
func (a *arrival) Close()                          { a.closed++ }

// bench is a connector with what it has asked for.
type bench struct {
	Connector
	arrivals []*arrival
	ids      int // how many it has taken
	ready    func(context.Context) error
}

func newBench(change func(*Connector)) *bench {
	b := &bench{ready: func(context.Context) error { return nil }}
	b.Connector = Connector{
		Expect: func(id string, count int) upstream.Arrival {
			a := &arrival{id: id, count: count, ready: b.ready}
			b.arrivals = append(b.arrivals, a)
			return a
		},
		NewID:       func() string { b.ids++; return fmt.Sprintf("id-%d", b.ids) },
		Receivers:   map[string]Receiver{"10.0.0.2:8200": {Host: "10.0.0.2", InitPorts: []int{7300}, AllocPorts: []int{7400}}},
		ChunkTokens: 256,
	}
	if change != nil {
		change(&b.Connector)
	}
	return b
}

func request(t *testing.T, api body.API, raw string) *body.Request {
	t.Helper()
	r, err := body.ParseRequest(api, []byte(raw))
	must(t, err)
	return r
}

// count are the ids from 1 to n.
func count(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i + 1)
	}
	return ids
}

// transfer is an attempt at a request, of so many ids in a context of 4,096.
func transfer(t *testing.T, api body.API, body string, ids int) upstream.Transfer {
	return upstream.Transfer{
		Request: request(t, api, body), RequestID: "turn-1", PromptIDs: count(ids), ContextLength: 4096,
		Prefill: &upstream.Instance{Name: "p", BaseURL: "http://10.0.0.1:8100"},
		Decode:  &upstream.Instance{Name: "d", BaseURL: "http://10.0.0.2:8200"},
	}
}

// plan is that of an attempt that goes to both.
func (b *bench) plan(t *testing.T, transfer upstream.Transfer) upstream.Plan {
	t.Helper()
	plan, err := b.Plan(t.Context(), transfer)
	if err != nil || plan.Alone != "" || plan.Ready == nil {
		t.Fatalf("got %+v, %v, want a plan that waits for the KV", plan, err)
	}
	return plan
}

// handOver is what a plan makes of prefill's answer.
func handOver(t *testing.T, plan upstream.Plan, answer string) *upstream.Handover {
	t.Helper()
	h, err := plan.Handover(answered(answer))
	must(t, err)
	return h
}

// answered is prefill's answer as upstream reads it.
func answered(body string) upstream.PrefillAnswer {
	var members, usage map[string]json.RawMessage
	_ = json.Unmarshal([]byte(body), &members) // what can't be read stays empty
	_ = json.Unmarshal(members["usage"], &usage)
	answer := upstream.PrefillAnswer{Body: []byte(body), Cached: -1}
	var details map[string]json.RawMessage
	if json.Unmarshal(usage["prompt_tokens_details"], &details) == nil && details["cached_tokens"] != nil {
		_ = json.Unmarshal(details["cached_tokens"], &answer.Cached)
	}
	_ = json.Unmarshal(members["id"], &answer.ID)
	_ = json.Unmarshal(usage["prompt_tokens"], &answer.PromptTokens)
	if params := members["kv_transfer_params"]; string(params) != "null" {
		answer.Params = params
	}
	return answer
}

// firstAnswer is prefill's answer to a prompt of so many ids: token 77 with this text.
func firstAnswer(text string, ids int, more ...string) string {
	body := fmt.Sprintf(`{"id":"cmpl-turn-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":%s,"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":[77],"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}],`+
		`"service_tier":null,"system_fingerprint":"fp","usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":3,"created_cache_tokens":null,"multimodal_tokens":null},"completion_tokens_details":null},"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`,
		quote(text), ids, ids+1)
	return strings.NewReplacer(more...).Replace(body)
}

func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // no string fails
	return strings.TrimSpace(b.String())
}

// events are the data of a stream's events.
func events(t *testing.T, stream string) (all []string) {
	t.Helper()
	for _, frame := range strings.SplitAfter(stream, "\n\n") {
		if frame == "" {
			continue
		}
		data, ok := strings.CutPrefix(strings.TrimSuffix(frame, "\n\n"), "data: ")
		if !ok || !strings.HasSuffix(frame, "\n\n") || strings.Contains(data, "\n") {
			t.Fatalf("%q is no event of one line", frame)
		}
		all = append(all, data)
	}
	return all
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
