package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream/vllmsim"
)

// The scenarios of LMCache run the whole program in front of simulated senders and receivers, whose notifications come over ZeroMQ.
// What a client gets must say what an engine says that is asked alone.

// lmcacheSetup says what a deployment is made of. The zero value is one sender and one receiver.
type lmcacheSetup struct {
	senders, receivers int
	change             func(*vllmsim.Config)
	flags              []string
	uncached           bool // decode has no prefix cache of its own
	probed             bool
	env                []string
	replace            func(*server.Deps)
	budget             time.Duration // of a hand-over, 0 for the default: see unannounced
	cut                bool          // the program ends without waiting for open turns, such as those whose KV never comes
}

// unannounced is the hand-over budget of scenarios in which KV is not announced. The command line would refuse a budget that is shorter
// than the time of a dial, and a busy machine needs that time.
const unannounced = 1500 * time.Millisecond

// lmcacheRig is the whole program in front of a deployment with LMCache.
type lmcacheRig struct {
	*rig
	lone *rig // an engine alone
	port int  // where notifications go
}

// triedPorts counts the ports that freePort has tried, which begin at another number in each process and lie below those that systems give
// to connections (from 32768 on Linux, 49152 elsewhere).
var triedPorts atomic.Int64

// freePort is one that nobody listens at: notifications need to know it before anyone does. No test of the process gets it twice.
func freePort(t *testing.T) int {
	t.Helper()
	const lowest, count = 12000, 20000
	for range count {
		port := lowest + (os.Getpid()*397+int(triedPorts.Add(1)))%count
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatal("no port is free")
	return 0
}

func startLMCache(t *testing.T, s lmcacheSetup) *lmcacheRig {
	t.Helper()
	port := freePort(t)
	prefill, decode := s.instances(t, port)
	r := s.program(t, port, prefill, decode)
	r.lone = startAlone(t, s.change, r.client)
	return r
}

// startAlone starts an engine of the same model with no connector that moves anything.
func startAlone(t *testing.T, change func(*vllmsim.Config), client *http.Client) *rig {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	cfg.Timing = vllmsim.Timing{}
	return &rig{base: testrig.StartInstance(t, cfg, "").URL(), client: client}
}

// instances starts senders, which send their notifications to a port, and receivers.
func (s *lmcacheSetup) instances(t *testing.T, port int) (prefill, decode []*vllmsim.Instance) {
	t.Helper()
	start := func(role string, n int) (list []*vllmsim.Instance) {
		for range max(1, n) {
			cfg := vllmsim.DefaultConfig()
			if s.change != nil {
				s.change(&cfg)
			}
			cfg.Role, cfg.Connector, cfg.LMCache.ProxyPort = role, vllmsim.ConnectorLMCache, port
			// A chunk that decode's own prefix cache has would not be read and stay at the receiver (measured).
			cfg.NoPrefixCaching = role == config.RoleDecode && s.uncached
			list = append(list, testrig.StartInstance(t, cfg, ""))
		}
		return list
	}
	return start(config.RolePrefill, s.senders), start(config.RoleDecode, s.receivers)
}

// program starts Carryover in front of instances.
func (s *lmcacheSetup) program(t *testing.T, port int, prefill, decode []*vllmsim.Instance) *lmcacheRig {
	t.Helper()
	flags := []string{"--connector", "lmcache", "--lmcache-listen", "127.0.0.1:" + strconv.Itoa(port)}
	for _, instance := range prefill {
		flags = append(flags, "--prefill", instance.URL())
	}
	registry := map[string]any{}
	for _, instance := range decode {
		flags = append(flags, "--decode", instance.URL())
		at := instance.Addresses()
		registry[instance.URL()] = map[string]any{
			"receiver_host": "127.0.0.1", "receiver_init_port": at.LMCacheInit, "receiver_alloc_port": at.LMCacheAlloc,
		}
	}
	flags = append(flags, "--decoder-registry", string(encode(registry)))
	r := startRig(t, rigConfig{flags: slices.Concat(flags, s.flags), probed: s.probed, env: s.env, replace: s.replace, server: func(c *server.Config) {
		c.HandoverBudget = cmp.Or(s.budget, c.HandoverBudget)
		if s.cut {
			c.DrainDelay = time.Millisecond
		}
	}})
	r.prefill, r.decode = prefill, decode
	return &lmcacheRig{rig: r, port: port}
}

// members are those of a request body.
type members = map[string]any

// endpointOf is the endpoint of a body.
func endpointOf(body members) string {
	if body["messages"] != nil {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// bodyOf completes members.
func bodyOf(all ...members) members {
	body := members{"model": "sim", "temperature": 0, "max_tokens": 400}
	for _, m := range all {
		maps.Copy(body, m)
	}
	if body["stream"] == true {
		body["stream_options"] = members{"include_usage": true}
	}
	return body
}

// say sends a request.
func (r *rig) say(t *testing.T, body members) *answered {
	t.Helper()
	header := http.Header{}
	a, err := r.post(t.Context(), endpointOf(body), header, encode(body), func(int, []byte) {})
	if err != nil {
		t.Errorf("%s: %v", body["model"], err)
		return &answered{header: http.Header{}}
	}
	return a
}

// alike sends a request and compares the answer with that of the engine alone, and the way with the one that is wanted.
func (r *lmcacheRig) alike(t *testing.T, way string, body members) *answered {
	t.Helper()
	got := r.say(t, body)
	r.compare(t, body, got)
	if path := got.header.Get("X-KV-Path"); !strings.HasPrefix(path, way) {
		t.Errorf("X-KV-Path: got %q, want %q", path, way)
	}
	return got
}

// compare compares an answer with that of the engine alone.
func (r *lmcacheRig) compare(t *testing.T, body members, got *answered) {
	t.Helper()
	alone := maps.Clone(body)
	delete(alone, "conversation_id")
	want := r.lone.say(t, alone)
	if got.status != want.status || got.status != http.StatusOK {
		t.Errorf("status: got %d, alone %d: %.500s", got.status, want.status, got.raw)
		return
	}
	if a, b := outcomeOf(got), outcomeOf(want); a != b {
		t.Errorf("answer\n got %s\nwant %s\nof %.300s", a, b, encode(body))
	}
	if bytes.Contains(got.raw, []byte("first_tok")) || bytes.Contains(got.raw, []byte(`"kv_transfer_params":{`)) {
		t.Errorf("the client sees params: %.500s", got.raw)
	}
}

// outcomeOf is what must be equal in two answers, as text.
func outcomeOf(a *answered) string {
	var tools []string
	for _, call := range a.tools {
		tools = append(tools, call.name, call.arguments)
	}
	usage := gjson.Parse(a.usage)
	var logprobs []string
	finish, stop := "", ""
	for _, chunk := range chunksOf(a.raw) {
		choice := chunk.Get("choices.0")
		if f := choice.Get("finish_reason"); f.Type == gjson.String {
			finish, stop = f.String(), choice.Get("stop_reason").Raw
		}
		for _, token := range choice.Get("logprobs.content.#.token").Array() {
			logprobs = append(logprobs, token.String())
		}
		for _, token := range choice.Get("logprobs.tokens").Array() {
			logprobs = append(logprobs, token.String())
		}
	}
	return string(encode(members{
		"content": a.content, "reasoning": a.reasoning, "tools": tools, "ends": a.ends, "finish": finish, "stop": stop, "logprobs": logprobs,
		"prompt": usage.Get("prompt_tokens").Int(), "completion": usage.Get("completion_tokens").Int(), "total": usage.Get("total_tokens").Int(),
	}))
}

// chunksOf are the events of a stream, or the body that is none.
func chunksOf(raw []byte) (chunks []gjson.Result) {
	for line := range bytes.Lines(raw) {
		data := bytes.TrimPrefix(bytes.TrimSpace(line), []byte("data: "))
		if gjson.ValidBytes(data) {
			chunks = append(chunks, gjson.ParseBytes(data))
		}
	}
	return chunks
}

// anyHeld is how many chunks a receiver may keep that has got some for turns that failed.
const anyHeld = -1

// verify ends the program and asserts what every scenario ends with: nothing was read before it had arrived, no request that would
// end a sender has reached one, and no receiver keeps more chunks than the scenario explains.
func (r *lmcacheRig) verify(t *testing.T, held int) {
	t.Helper()
	r.rig.verify(t, pins{})
	r.verifyLegs(t)
	if got := r.sum(t, config.RoleDecode)["chunks_held"]; held != anyHeld && got != held {
		t.Errorf("chunks that wait at receivers: got %d, want %d", got, held)
	}
	if n := r.sum(t, "")["early_reads"]; n != 0 {
		t.Errorf("early reads: got %d, want 0", n)
	}
	if n := r.sum(t, config.RolePrefill)["deaths"]; n != 0 {
		t.Errorf("senders that have ended: got %d, want 0", n)
	}
}

// verifyLegs asserts that every completion that a sender got has ids and a whole disagg_spec.
func (r *lmcacheRig) verifyLegs(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, sender := range r.prefill {
		for _, recorded := range sender.Requests() {
			// Rendering is work of the API server and reaches no engine.
			if recorded.Method != http.MethodPost || !strings.HasPrefix(recorded.Path, "/v1/") || strings.HasSuffix(recorded.Path, "/render") {
				continue
			}
			params := gjson.GetBytes(recorded.Body, "kv_transfer_params")
			spec := params.Get("disagg_spec")
			for _, name := range []string{"req_id", "receiver_host", "receiver_init_port.0", "receiver_alloc_port.0"} {
				if !spec.Get(name).Exists() {
					t.Errorf("a sender got %s without %s: %.300s", recorded.Path, name, recorded.Body)
				}
			}
			if recorded.Path != "/v1/completions" || !gjson.GetBytes(recorded.Body, "prompt.0").Exists() || !gjson.GetBytes(recorded.Body, "return_token_ids").Bool() {
				t.Errorf("a sender got another leg than ids that ask for the first token: %s %.300s", recorded.Path, recorded.Body)
			}
			if params.Get("ret_first_tok").Exists() {
				t.Errorf("a sender got a leg that ends it when it is cancelled: %s", params.Raw)
			}
			if id := spec.Get("req_id").String(); seen[id] {
				t.Errorf("req_id %s was used twice", id)
			} else {
				seen[id] = true
			}
		}
	}
	for _, receiver := range r.decode {
		for _, body := range legs(receiver) {
			params := gjson.GetBytes(body, "kv_transfer_params")
			if len(params.Map()) != min(1, len(params.Get(`lmcache\.tag\.attempt`).String())) {
				t.Errorf("a receiver got params other than the tag: %s", params.Raw)
			}
		}
	}
}

// dialogueOf is a conversation whose turns follow one another.
type dialogueOf struct {
	messages []json.RawMessage
	prompt   string
	text     bool
}

// next is the request of the next turn.
func (d *dialogueOf) next(question string) members {
	if d.text {
		d.prompt += question
		return members{"prompt": d.prompt}
	}
	d.messages = append(d.messages, encode(map[string]string{"role": "user", "content": question}))
	return members{"messages": slices.Clone(d.messages)}
}

func (d *dialogueOf) remember(a *answered) {
	d.prompt += a.content
	d.messages = append(d.messages, a.assistant())
}
