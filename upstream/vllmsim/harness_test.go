package vllmsim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carryover/upstream/vllmsim/wire"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// object is a JSON object as tests write them.
type object = map[string]any

// client keeps no idle connections, so that every test ends without goroutines.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
}

func startInstance(t *testing.T, change func(*Config)) *Instance {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	i, err := Start(cfg)
	must(t, err)
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return i
}

// startPair runs a prefill and a decode instance of one deployment.
func startPair(t *testing.T, change func(*Config)) (p, d *Instance) {
	t.Helper()
	return startInstance(t, change), startInstance(t, change)
}

type answer struct {
	status int
	header http.Header
	raw    []byte
	body   object
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// newRequest makes a request with a body that is JSON, or becomes it; nil for a GET.
func newRequest(t *testing.T, i *Instance, path string, body any) *http.Request {
	t.Helper()
	method, raw := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		var ok bool
		if raw, ok = body.([]byte); !ok {
			raw = wire.RawJSON(body)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, i.URL()+path, bytes.NewReader(raw))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	return req
}

func post(t *testing.T, i *Instance, path string, body any) answer {
	t.Helper()
	if body == nil {
		body = []byte{}
	}
	return do(t, newRequest(t, i, path, body))
}

func chat(t *testing.T, i *Instance, body any) answer {
	t.Helper()
	return post(t, i, wire.PathChat, body)
}

func get(t *testing.T, i *Instance, path string) answer {
	t.Helper()
	return do(t, newRequest(t, i, path, nil))
}

// answers fails the test if the status is another.
func (r answer) answers(t *testing.T, status int) answer {
	t.Helper()
	if r.status != status {
		t.Errorf("answered %d, want %d: %.1000s", r.status, status, r.raw)
	}
	return r
}

// then are the messages of the next turn.
func then(messages []any, reply answer) []any {
	return append(messages, assistant(reply.text()), user("And then?"))
}

func do(t *testing.T, req *http.Request) answer {
	t.Helper()
	resp, err := client().Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read answer of %s: %v", req.URL.Path, err)
	}
	r := answer{status: resp.StatusCode, header: resp.Header, raw: raw}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") && bytes.HasPrefix(raw, []byte("{")) {
		if err := json.Unmarshal(raw, &r.body); err != nil {
			t.Fatalf("answer of %s is not JSON: %v: %s", req.URL.Path, err, raw)
		}
	}
	return r
}

// events returns the data of the events of a stream.
func (r answer) events(t *testing.T) []string {
	t.Helper()
	text, ok := strings.CutSuffix(string(r.raw), "\n\n")
	if !ok {
		t.Fatalf("stream does not end with a blank line: %q", r.raw)
	}
	list := strings.Split(text, "\n\n")
	for n, event := range list {
		if list[n], ok = strings.CutPrefix(event, "data: "); !ok {
			t.Fatalf("event %d is no data line: %q", n, event)
		}
	}
	return list
}

// params is the kv_transfer_params of an answer, nil when null.
func (r answer) params() object {
	p, _ := r.body["kv_transfer_params"].(object)
	return p
}

func (r answer) choice() object { return r.body["choices"].([]any)[0].(object) }

func (r answer) text() string {
	c := r.choice()
	if m, ok := c["message"].(object); ok {
		text, _ := m["content"].(string)
		return text
	}
	return c["text"].(string)
}

func ids(v any) []int32 {
	list, _ := v.([]any)
	out := make([]int32, len(list))
	for n, id := range list {
		out[n] = int32(id.(float64))
	}
	return out
}

// asking is a chat request.
func asking(text string) object { return object{"model": "sim", "messages": []any{user(text)}} }

func user(text string) object      { return object{"role": "user", "content": text} }
func assistant(text string) object { return object{"role": "assistant", "content": text} }

func prefillTemplate() object {
	return object{"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil, "remote_block_ids": nil,
		"remote_host": nil, "remote_port": nil}
}

// with copies o and sets members.
func with[T any](o, members map[string]T) map[string]T {
	out := maps.Clone(o)
	maps.Copy(out, members)
	return out
}

// turn runs one turn over p and d; previous are the params that decode gave on the turn before.
func turn(t *testing.T, p, d *Instance, messages []any, previous object, extra object) (prefill, decode answer) {
	t.Helper()
	if previous == nil {
		previous = prefillTemplate()
	}
	body := with(object{"model": p.config().Model, "messages": messages, "temperature": 0, "return_token_ids": true}, extra)
	prefill = chat(t, p, with(body, object{"max_tokens": 1, "kv_transfer_params": previous}))
	prefill.answers(t, http.StatusOK)
	decode = chat(t, d, with(body, object{"kv_transfer_params": prefill.params()}))
	decode.answers(t, http.StatusOK)
	return prefill, decode
}

const longText = "The quiet river carries old letters to the harbour, and the harbour keeps them until the morning. A careful reader opens every letter, reads the first line, and writes a short answer under it. Nobody hurries. The ships wait for the wind, the wind waits for the evening, and the evening arrives when the lamps are lit along the stone bridge."

// eventually waits for what another goroutine is about to do.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("never happened: %s", what)
		}
	}
}

// begin sends a request whose answer is not waited for; the returned function takes it back and waits for its end, which must not be in order.
func begin(t *testing.T, i *Instance, path string, body any) (cancel func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	req := newRequest(t, i, path, body).WithContext(ctx)
	ended := make(chan error, 1) // room for the one result, so that the goroutine ends even if it is not read
	go func() {
		resp, err := client().Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		ended <- err
	}()
	return func() {
		t.Helper()
		stop()
		if <-ended == nil {
			t.Error("the request was answered in order")
		}
	}
}

// becomes waits until an instance has counted that.
func becomes(t *testing.T, i *Instance, want counts) {
	t.Helper()
	eventually(t, fmt.Sprint(want), func() bool { return missed(i, want) == "" })
}

// nextTurn runs a turn, and returns the messages of the next one and its ticket.
func nextTurn(t *testing.T, p, d *Instance) (next []any, ticket object) {
	t.Helper()
	messages, reply := firstTurn(t, p, d)
	return then(messages, reply), reply.params()
}

// counts are some of an instance's Stats by their names.
type counts = map[string]int

// expect compares what an instance has counted.
func expect(t *testing.T, i *Instance, want counts) {
	t.Helper()
	if text := missed(i, want); text != "" {
		t.Errorf("the %s engine has counted %s", i.config().Role, text)
	}
}

// missed says what an instance has counted otherwise.
func missed(i *Instance, want counts) (text string) {
	s := reflect.ValueOf(i.Stats())
	for name, n := range want {
		if got := int(s.FieldByName(name).Int()); got != n {
			text += fmt.Sprintf("%d %s, want %d; ", got, name, n)
		}
	}
	return text
}

// assertClean checks that nothing was read wrongly.
func assertClean(t *testing.T, instances ...*Instance) {
	t.Helper()
	for _, i := range instances {
		expect(t, i, counts{"CorruptReads": 0, "Poisoned": 0, "DoubleReads": 0, "ExpiredReads": 0, "UnknownReads": 0, "Deaths": 0})
	}
}
