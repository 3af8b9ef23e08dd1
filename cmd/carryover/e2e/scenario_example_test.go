package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
)

// taught returns how many shapes of requests prefill instances have been taught. A busy one is taught in several rounds.
func (w *writes) taught() (shapes int) {
	for line := range strings.Lines(w.String()) {
		if strings.Contains(line, "prefill was taught shapes of requests") {
			shapes += int(gjson.Get(line, "equal").Int())
		}
	}
	return shapes
}

// hostsAndPorts are the list flags of vLLM's example for some instances.
func hostsAndPorts(t *testing.T, role string, instances []*vllmsim.Instance) []string {
	t.Helper()
	hosts, ports := []string{"--" + role + "-host"}, []string{"--" + role + "-port"}
	for _, instance := range instances {
		u, err := url.Parse(instance.URL())
		noError(t, err)
		hosts, ports = append(hosts, u.Hostname()), append(ports, u.Port())
	}
	return append(hosts, ports...)
}

// TestExample_CommandLine replaces "python disagg_proxy_multiturn.py" by carryover: the
// flags, the environment, the request's members and /health are those of vLLM's
// example; only the proof is chosen besides.
func TestExample_CommandLine(t *testing.T) {
	const key = "key-of-the-engines"
	cfg := vllmsim.DefaultConfig()
	cfg.APIKey = key
	prefill, decode := startInstances(t, 2, cfg), startInstances(t, 2, cfg)
	r, log := startProgram(t, []string{"OPENAI_API_KEY=" + key},
		slices.Concat([]string{"--log-level", "debug"}, hostsAndPorts(t, "prefiller", prefill), hostsAndPorts(t, "decoder", decode))...)
	r.prefill, r.decode = prefill, decode
	if !within(nemesisPatience, func() bool { return log.taught() == 24*len(r.prefill) }) {
		t.Fatalf("prefill was not taught: %s", log)
	}

	const turns = 3
	conversations := 0
	for _, api := range []string{"chat", "text"} {
		for _, stream := range []bool{true, false} {
			conversations++
			id := fmt.Sprintf("%s-%v", api, stream)
			t.Run(id, func(t *testing.T) { r.converseAs(t, api, id, stream, turns) })
		}
	}
	r.checkHealth(t, conversations)
	r.checkExampleLegs(t, conversations*turns)
	total := r.sum("")
	if n := r.wrong(); n != 0 {
		t.Errorf("wrong reads: got %d, want 0 (%v)", n, total)
	}
	if total["leased_pins"] != 0 || total["pins"] != conversations {
		t.Errorf("pins: got %d of prefill and %d in all, want 0 and one for each of %d conversations", total["leased_pins"], total["pins"], conversations)
	}
}

// converseAs holds a conversation and wants a hit on every turn after the first.
func (r *rig) converseAs(t *testing.T, api, id string, stream bool, turns int) {
	t.Helper()
	h := &history{}
	for turn := 1; turn <= turns; turn++ {
		members := object{"model": "sim", "stream": stream, "max_tokens": 2000, "conversation_id": id}
		path, script := "/v1/chat/completions", ""
		if api == "text" {
			path, script = "/v1/completions", h.askText("auto", turn)
			members["prompt"] = h.prompt
		} else {
			script = h.askChat("auto", "", turn)
			members["messages"] = h.messages
		}
		a := r.must(t, path, nil, members)
		if a.status != http.StatusOK || a.content != script {
			t.Fatalf("turn %d: status %d, answer %q, want %q", turn, a.status, a.content, script)
		}
		if hit := a.hit(); hit != (turn > 1) {
			t.Errorf("turn %d: X-KV-Reuse %q", turn, a.reuse())
		}
		h.messages = append(h.messages, a.assistant())
		h.prompt += a.content
	}
}

// checkHealth compares the fields that the example's /health has.
func (r *rig) checkHealth(t *testing.T, conversations int) {
	t.Helper()
	_, body := r.get(t, r.base+"/health")
	got := gjson.Parse(body)
	if got.Get("status").String() != "ok" || got.Get("cached_conversations").Raw != fmt.Sprint(conversations) || got.Get("evicted_stale").Raw != "0" {
		t.Errorf("/health: got %s, want ok, %d and 0", body, conversations)
	}
}

// checkExampleLegs looks at what reached the engines.
func (r *rig) checkExampleLegs(t *testing.T, turns int) {
	t.Helper()
	for _, role := range []string{config.RolePrefill, config.RoleDecode} {
		n := 0
		for _, instance := range r.all(role) {
			for _, body := range legs(instance) {
				if !bytes.Contains(body, []byte("kv_transfer_params")) { // of a lesson, which hands nothing over
					continue
				}
				n++
				if bytes.Contains(body, []byte("conversation_id")) {
					t.Errorf("%s got conversation_id: %.200s", role, body)
				}
			}
		}
		if n != turns {
			t.Errorf("%s legs: got %d, want %d", role, n, turns)
		}
	}
}
