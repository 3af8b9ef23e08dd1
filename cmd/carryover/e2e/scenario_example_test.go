package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/upstream/vllmsim"
)

// awaitTaught waits until so many prefill instances have been taught shapes of requests, which debug lines say. A busy one is taught in rounds.
func (w *writes) awaitTaught(t *testing.T, prefills int) {
	t.Helper()
	if !within(nemesisPatience, func() bool {
		shapes := 0
		for line := range strings.Lines(w.String()) {
			if strings.Contains(line, "prefill was taught shapes of requests") {
				shapes += int(gjson.Get(line, "equal").Int())
			}
		}
		return shapes == 24*prefills
	}) {
		t.Fatalf("prefill was not taught: %s", w)
	}
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
	log.awaitTaught(t, len(prefill))

	conversations := 0
	for _, api := range []string{"chat", "text"} {
		for _, stream := range []bool{true, false} {
			conversations++
			id, h := fmt.Sprintf("%s-%v", api, stream), &history{}
			for turn := range 3 {
				body, script := object{"model": "sim", "stream": stream, "max_tokens": 2000, "conversation_id": id}, ""
				if api == "text" {
					script = h.askText("auto", turn)
					body["prompt"] = h.prompt
				} else {
					script = h.askChat("auto", "", turn)
					body["messages"] = h.messages
				}
				a := r.say(t, body)
				if a.status != http.StatusOK || a.content != script || a.hit() != (turn > 0) {
					t.Fatalf("%s, turn %d: status %d, X-KV-Reuse %q, answer %q, want %q", id, turn, a.status, a.reuse(), a.content, script)
				}
				h.messages, h.prompt = append(h.messages, a.assistant()), h.prompt+a.content
			}
		}
	}
	_, health := r.get(t, r.base+"/health")
	if gjson.Get(health, "status").String() != "ok" || gjson.Get(health, "cached_conversations").Raw != fmt.Sprint(conversations) || gjson.Get(health, "evicted_stale").Raw != "0" {
		t.Errorf("/health: got %s, want ok, %d and 0", health, conversations)
	}
	total := r.sum("")
	if n := r.wrong(); n != 0 {
		t.Errorf("wrong reads: got %d, want 0 (%v)", n, total)
	}
	if total["leased_pins"] != 0 || total["pins"] != conversations {
		t.Errorf("pins: got %d of prefill and %d in all, want 0 and one for each of %d conversations", total["leased_pins"], total["pins"], conversations)
	}
}
