package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// triedPorts counts the ports that freePort has tried, which begin at another number in each process and lie below those that systems give
// to connections (from 32768 on Linux, 49152 elsewhere).
var triedPorts atomic.Int64

// freePort is one that nobody listens at: notifications need to know it before anyone does. No test of the process gets it twice.
func freePort(t *testing.T) int {
	t.Helper()
	const lowest, count = 12000, 8000 // deployments of package demo, in other processes of a test run, have those from 20,000 on
	for range count {
		port := lowest + (os.Getpid()*397+int(triedPorts.Add(1)))%count
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		noError(t, l.Close())
		return port
	}
	t.Fatal("no port is free")
	return 0
}

// connected starts an instance with the rig's connector. That of "orchestrated" answers NIXL's params, and may name another host than the one where
// it listens.
func (r *rig) connected(t *testing.T, role string, cfg vllmsim.Config) *vllmsim.Instance {
	t.Helper()
	cfg.Role, cfg.Connector = role, r.connector
	switch r.connector {
	case config.ConnectorLMCache:
		cfg.LMCache.ProxyPort = r.port
	case config.ConnectorLMCacheStorage:
		cfg.Storage.Folder = r.folder
	case config.ConnectorMooncake:
		cfg.PromptTokensDetails = true
	case config.ConnectorOrchestrated:
		if testing.Short() {
			t.Skip("drives the whole program")
		}
		cfg.Connector, cfg.Bidirectional = vllmsim.ConnectorNIXL, false
		instance, err := vllmsim.Start(cfg)
		noError(t, err)
		t.Cleanup(func() { _ = instance.Close() })
		return instance
	}
	return testrig.StartInstance(t, cfg, "")
}

// connecting are the flags of a program in front of the instances. Those of Mooncake are in a file, which is to say more.
func (r *rig) connecting(t *testing.T, more string) []string {
	t.Helper()
	flags := []string{"--connector", r.connector}
	switch r.connector {
	case config.ConnectorMooncake:
		r.file = filepath.Join(t.TempDir(), "carryover.yaml")
		more += "prefill:\n"
		for _, p := range r.prefill {
			more += fmt.Sprintf("  - {url: %q, bootstrap_port: %d%s}\n", p.URL(), p.Addresses().BootstrapPort, r.entry)
		}
		r.configure(t, more+naming(nil, r.decode, ""))
		// A decode leg that waits for KV in vain must fail the test before the engine's 480 s are over.
		return append(flags, "--config", r.file, "--first-byte-timeout", "20s", "--answer-timeout", "20s")
	case config.ConnectorLMCache:
		registry := object{}
		for _, instance := range r.decode {
			at := instance.Addresses()
			registry[instance.URL()] = object{
				"receiver_host": "127.0.0.1", "receiver_init_port": at.LMCacheInit, "receiver_alloc_port": at.LMCacheAlloc,
			}
		}
		flags = append(flags, "--lmcache-listen", "127.0.0.1:"+strconv.Itoa(r.port), "--decoder-registry", string(encode(registry)))
	}
	return append(flags, r.named()...)
}

// startAlone starts an engine of the same model with no connector that moves anything: it says what is right.
func (r *rig) startAlone(t *testing.T, cfg vllmsim.Config) {
	t.Helper()
	cfg.Timing = vllmsim.Timing{}
	r.lone = &rig{base: testrig.StartInstance(t, cfg, "").URL(), client: r.client}
}

// compare compares an answer with that of the engine alone.
func (r *rig) compare(t *testing.T, path string, body []byte, got *answered) {
	t.Helper()
	members := map[string]json.RawMessage{}
	noError(t, json.Unmarshal(body, &members))
	delete(members, "conversation_id")
	want, err := r.lone.post(t.Context(), path, nil, encode(members), unwatched)
	if err != nil || got.status != want.status {
		t.Fatalf("status: got %d, alone %+v (%v): %.500s", got.status, want, err, got.raw)
	}
	if a, b := outcomeOf(got), outcomeOf(want); a != b && got.code == "" || got.message != want.message {
		t.Errorf("answer\n got %s\nwant %s\nof %.300s", a, b, body)
	}
	if bytes.Contains(got.raw, []byte("first_tok")) {
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
	for line := range bytes.Lines(a.raw) {
		choice := gjson.GetBytes(bytes.TrimPrefix(line, []byte("data: ")), "choices.0")
		if f := choice.Get("finish_reason"); f.Type == gjson.String {
			finish, stop = f.String(), choice.Get("stop_reason").Raw
		}
		for _, token := range append(choice.Get("logprobs.content.#.token").Array(), choice.Get("logprobs.tokens").Array()...) {
			logprobs = append(logprobs, token.String())
		}
	}
	return string(encode([]any{
		a.content, a.reasoning, tools, a.ends, finish, stop, logprobs,
		usage.Get("prompt_tokens").Int(), usage.Get("completion_tokens").Int(), usage.Get("total_tokens").Int(),
	}))
}

// verifyConnector asserts what every scenario of a connector ends with.
func (r *rig) verifyConnector(t *testing.T) {
	t.Helper()
	for _, instance := range r.all("") {
		for _, body := range legs(instance) {
			params := gjson.GetBytes(body, "kv_transfer_params")
			if r.connector == config.ConnectorLMCacheStorage && params.IsObject() {
				t.Errorf("a leg has params: %s", params)
			}
		}
	}
	if r.connector == config.ConnectorLMCache {
		r.verifyLegs(t)
	}
}

// verifyLegs asserts that LMCache's senders have got nothing that would end them: only completions of ids with a whole disagg_spec, which ask for
// the first token.
func (r *rig) verifyLegs(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, sender := range r.prefill {
		for _, recorded := range sender.Requests() {
			// Rendering is work of the API server and reaches no engine.
			if recorded.Method != http.MethodPost || !strings.HasPrefix(recorded.Path, "/v1/") || strings.HasSuffix(recorded.Path, "/render") {
				continue
			}
			leg := gjson.ParseBytes(recorded.Body)
			spec := leg.Get("kv_transfer_params.disagg_spec")
			for _, name := range []string{"req_id", "receiver_host", "receiver_init_port.0", "receiver_alloc_port.0"} {
				if !spec.Get(name).Exists() {
					t.Errorf("a sender got %s without %s: %.300s", recorded.Path, name, recorded.Body)
				}
			}
			if recorded.Path != "/v1/completions" || !leg.Get("prompt.0").Exists() || !leg.Get("return_token_ids").Bool() || leg.Get("kv_transfer_params.ret_first_tok").Exists() {
				t.Errorf("a sender got another leg than ids that ask for the first token, or one that ends it when it is cancelled: %s %.300s", recorded.Path, recorded.Body)
			}
			id := spec.Get("req_id").String()
			if seen[id] {
				t.Errorf("req_id %s was used twice", id)
			}
			seen[id] = true
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

// longAsk is a question of several of LMCache's chunks that ends with what is asked, or has the model say the n-th text.
func longAsk(n int, asked string) string {
	return longText(n) + longText(n+1) + longText(n+2) + longText(n+3) + longText(n+4) + "." + cmp.Or(asked, " SAY "+longText(n+5)+".")
}
