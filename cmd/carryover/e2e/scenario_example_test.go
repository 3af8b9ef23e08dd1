package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/cmd/carryover/cli"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// addressLog is a standard error on which the program says where it serves.
type addressLog struct {
	mu      sync.Mutex // guards text
	text    bytes.Buffer
	address chan string // holds the one address
}

var servingAt = regexp.MustCompile(`msg=serving address=(\S+)`)

// Write implements io.Writer.
func (l *addressLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := servingAt.FindSubmatch(p); found != nil {
		l.address <- string(found[1])
	}
	return l.text.Write(p)
}

// String returns everything written so far.
func (l *addressLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var shapesTaught = regexp.MustCompile(`prefill was taught shapes of requests" prefill=\S+ incarnation=\S+ equal=(\d+)`)

// taught returns how many shapes of requests prefill instances have been taught. A busy one is taught in several rounds.
func (l *addressLog) taught() (shapes int) {
	for _, found := range shapesTaught.FindAllStringSubmatch(l.String(), -1) {
		n, _ := strconv.Atoi(found[1])
		shapes += n
	}
	return shapes
}

// startLogged runs the whole program by its command line until the test ends, and returns where it serves and its log.
func startLogged(t *testing.T, args, env []string) (string, *addressLog) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stderr := &addressLog{address: make(chan string, 1)}
	ended := make(chan int, 1) // one exit code, read once
	go func() { ended <- cli.Run(ctx, args, env, io.Discard, stderr) }()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != command.ExitOK {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
	select {
	case address := <-stderr.address:
		return "http://" + address, stderr
	case <-time.After(time.Minute):
		t.Fatalf("the program does not serve: %s", stderr)
		return "", nil
	}
}

// hostsAndPorts are the list flags of vLLM's example for some instances.
func hostsAndPorts(t *testing.T, role string, instances []*vllmsim.Instance) []string {
	t.Helper()
	hosts, ports := []string{"--" + role + "-host"}, []string{"--" + role + "-port"}
	for _, instance := range instances {
		u, err := url.Parse(instance.URL())
		if err != nil {
			t.Fatal(err)
		}
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
	r := &rig{client: &http.Client{Transport: &http.Transport{}}}
	for range 2 {
		r.prefill = append(r.prefill, testrig.StartInstance(t, cfg, ""))
		r.decode = append(r.decode, testrig.StartInstance(t, cfg, ""))
	}
	args := append([]string{"--host", "127.0.0.1", "--port", "0", "--admin-listen", "off"}, hostsAndPorts(t, "prefiller", r.prefill)...)
	args = append(args, hostsAndPorts(t, "decoder", r.decode)...)
	args = append(args, testrig.Patient()...)
	var log *addressLog
	r.base, log = startLogged(t, append(args, "--log-level", "debug"), []string{"OPENAI_API_KEY=" + key})
	if !within(nemesisPatience, func() bool { return log.taught() == 24*len(r.prefill) }) {
		t.Fatalf("prefill was not taught: %s", log)
	}
	t.Cleanup(r.client.CloseIdleConnections) // before the program ends

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
	total := r.sum(t, "")
	if n := r.wrong(t); n != 0 {
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
		members := map[string]any{"model": "sim", "stream": stream, "max_tokens": 2000, "conversation_id": id}
		path, script := "/v1/chat/completions", ""
		if api == "text" {
			path, script = "/v1/completions", h.askText("auto", turn)
			members["prompt"] = h.prompt
		} else {
			script = h.askChat("auto", "", turn)
			members["messages"] = h.messages
		}
		a, err := r.post(t.Context(), path, http.Header{}, encode(members), func(int, []byte) {})
		if err != nil {
			t.Fatal(err)
		}
		if a.status != http.StatusOK || a.content != script {
			t.Fatalf("turn %d: status %d, answer %q, want %q", turn, a.status, a.content, script)
		}
		if hit := strings.HasPrefix(a.reuse(), "hit;"); hit != (turn > 1) {
			t.Errorf("turn %d: X-KV-Reuse %q", turn, a.reuse())
		}
		h.messages = append(h.messages, a.assistant())
		h.prompt += a.content
	}
}

// checkHealth compares the fields that the example's /health has.
func (r *rig) checkHealth(t *testing.T, conversations int) {
	t.Helper()
	resp, err := r.client.Get(r.base + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Status string `json:"status"`
		Cached *int   `json:"cached_conversations"`
		Stale  *int   `json:"evicted_stale"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Status != "ok" || got.Cached == nil || *got.Cached != conversations || got.Stale == nil || *got.Stale != 0 {
		t.Errorf("/health: got %s, want ok, %d and 0", encode(got), conversations)
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
