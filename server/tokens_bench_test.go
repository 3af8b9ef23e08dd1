package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
)

// cannedVariable makes the test binary an engine of the role that it names, so that the
// engines' work is not in the measurement.
const cannedVariable = "CARRYOVER_TEST_ENGINE"

// serveCanned serves until its standard input ends.
func serveCanned() int {
	role := upstream.RolePrefill
	if strings.HasPrefix(os.Getenv(cannedVariable), upstream.RoleDecode.String()) {
		role = upstream.RoleDecode
	}
	engine := httptest.NewServer(newCanned(role, strings.HasSuffix(os.Getenv(cannedVariable), "plug-in")))
	defer engine.Close()
	fmt.Println(engine.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// runCanned starts an engine as a process and returns its URL.
func runCanned(b *testing.B, role upstream.Role, plugIn bool) string {
	b.Helper()
	variable := cannedVariable + "=" + role.String()
	if plugIn {
		variable += " with plug-in"
	}
	return runEngine(b, variable)
}

// runEngine runs the test binary as the engine that a variable of its environment names, and returns its URL.
func runEngine(b *testing.B, variable string) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), variable)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // it ends with its input, or with the benchmark's context
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// canned is an engine whose answers are ready.
type canned struct {
	role     upstream.Role
	ids      []byte // of the prompt, as JSON without brackets
	tokenize []byte
	plugIn   bool
}

const (
	cannedPrompt = 8000 // tokens, as in a long chat
	cannedOutput = 100  // one event each
	cannedBlock  = 16
)

func newCanned(role upstream.Role, plugIn bool) *canned {
	var ids []byte
	for i := range cannedPrompt {
		ids = append(strconv.AppendInt(ids, int64(1000+i*13%90000), 10), ',')
	}
	ids = ids[:len(ids)-1]
	return &canned{role: role, ids: ids, plugIn: plugIn, tokenize: fmt.Appendf(nil, `{"count":%d,"max_model_len":131072,"tokens":[%s],"token_strs":null}`, cannedPrompt, ids)}
}

// ServeHTTP implements http.Handler.
func (e *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a client that breaks off is a failed benchmark anyway
	id := r.Header.Get("X-Request-Id")
	switch {
	case r.URL.Path == "/metrics":
		_, _ = io.WriteString(w, "process_start_time_seconds 1.5e+09\nvllm:cache_config_info{block_size=\"16\"} 1\n")
	case r.URL.Path == "/tokenize":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(e.tokenize)
	case strings.HasSuffix(r.URL.Path, "/render"):
		w.WriteHeader(http.StatusForbidden)
	case bytes.Contains(body, []byte(`"prompt_token_ids":[1,-1]`)):
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"x","type":"BadRequestError","param":"kv_transfer_params.prompt_token_ids","code":400}}`)
	case e.role == upstream.RolePrefill:
		e.prefill(w, id, bytes.Contains(body, []byte(`"return_token_ids":true`)))
	default:
		e.decode(w, id, bytes.Contains(body, []byte(`"return_token_ids":true`)), bytes.Contains(body, []byte(`"include_usage":true`)))
	}
}

func (e *canned) prefill(w http.ResponseWriter, id string, ids bool) {
	w.Header().Set("Content-Type", "application/json")
	answer := `{"id":"chatcmpl-` + id + `","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"length"}],"prompt_token_ids":`
	if ids {
		answer += "[" + string(e.ids) + "]"
	} else {
		answer += "null"
	}
	_, _ = io.WriteString(w, answer+`,"kv_transfer_params":`+cannedParams(id, true, nil)+`}`)
}

// decode writes its events in one go, so that what is measured is not the kernel.
func (e *canned) decode(w http.ResponseWriter, id string, ids, usage bool) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	var b bytes.Buffer
	prompt := "null"
	if ids {
		prompt = "[" + string(e.ids) + "]"
	}
	chunk := func(choice, rest string) {
		fmt.Fprintf(&b, "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,%s}]%s}\n\n", id, choice, rest)
	}
	chunk(`"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null`, `,"prompt_token_ids":`+prompt)
	var output []byte
	for i := range cannedOutput - 1 {
		tokens := "null"
		if ids {
			tokens = fmt.Sprintf("[%d]", i)
		}
		output = fmt.Appendf(output, "%d,", i)
		chunk(`"delta":{"content":"word "},"logprobs":null,"finish_reason":null,"token_ids":`+tokens, "")
	}
	tokens := "null"
	if ids {
		tokens = "[7]"
	}
	var own []byte
	if e.plugIn {
		own = append(output, '7')
	}
	chunk(`"delta":{"content":"."},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":`+tokens, `,"kv_transfer_params":`+cannedParams(id, false, own))
	if usage {
		fmt.Fprintf(&b, "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}\n\n", id, cannedPrompt, cannedPrompt+cannedOutput, cannedOutput)
	}
	b.WriteString("data: [DONE]\n\n")
	_, _ = w.Write(b.Bytes())
}

func cannedParams(id string, prefill bool, output []byte) string {
	held := cannedPrompt
	if !prefill {
		held += cannedOutput - 1
	}
	blocks := strings.TrimSuffix(strings.Repeat("1234,", (held+cannedBlock-1)/cannedBlock), ",")
	extra := ""
	if output != nil {
		extra = `,"output_token_ids":[` + string(output) + `]`
	}
	return fmt.Sprintf(`{"do_remote_prefill":%v,"do_remote_decode":%v,"remote_block_ids":[[%s]],"remote_engine_id":"e","remote_request_id":"r-%s","remote_host":"10.0.0.1","remote_port":5600,"tp_size":1,"remote_num_tokens":%d,"remote_blocks_expiry_time":1.5%s}`,
		prefill, !prefill, blocks, id, held, extra)
}

// BenchmarkTurn is one later turn with a prompt of 8,000 tokens that hits. cpu-µs/op is
// the whole process's: engines, client and proxy.
func BenchmarkTurn(b *testing.B) {
	for _, tc := range []struct {
		name   string
		plugIn bool
	}{
		{"plug-in", true},
		{"ids per chunk", false},
	} {
		b.Run(tc.name, func(b *testing.B) { benchTurn(b, tc.plugIn) })
	}
	// Short turns and long first messages, eight clients at a time. cpu-µs/op is client and proxy; the engines are processes of their own.
	for _, size := range []struct {
		name  string
		bytes int
	}{{"W1", 4 << 10}, {"W3", 256 << 10}} {
		b.Run(size.name+"/no conversation", func(b *testing.B) { benchWorkload(b, size.bytes, false) })
		b.Run(size.name+"/conversation", func(b *testing.B) { benchWorkload(b, size.bytes, true) })
	}
}

func benchTurn(b *testing.B, plugIn bool) {
	b.Helper()
	front, stop := startCanned(b, plugIn)
	defer stop()
	// The text of 8,000 tokens, in a history that ends with what decode says.
	said := strings.Repeat("word ", cannedOutput-1) + "."
	question := `{"role":"user","content":"` + strings.Repeat("four char words here ", cannedPrompt/5) + `"}`
	turn := func(i int, body string) string {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, front+chatPath, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Conversation-Id", strconv.Itoa(i))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.HasSuffix(answer, []byte("[DONE]\n\n")) {
			b.Fatalf("status %d, %v: %.300s", resp.StatusCode, err, answer)
		}
		return resp.Header.Get("X-KV-Reuse")
	}
	members := `{"model":"m","stream":true,"messages":[`
	first := members + question + `]}`
	later := members + question + `,{"role":"assistant","content":"` + said + `"},{"role":"user","content":"and?"}]}`
	turn(0, first)
	for range 3 {
		turn(0, later) // learns what there is to be learnt
	}
	for i := range b.N {
		turn(i+1, first)
	}
	before := cpuTime(b)
	b.ResetTimer()
	for i := range b.N {
		if reuse := turn(i+1, later); !strings.HasPrefix(reuse, "hit;") {
			b.Fatalf("X-KV-Reuse %q, want a hit", reuse)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func startCanned(b *testing.B, plugIn bool) (front string, stop func()) {
	b.Helper()
	return startMeasured(b, func(role upstream.Role) string { return runCanned(b, role, plugIn) },
		func(c *server.Config, _ *server.Deps) { c.Logger = slog.New(slog.DiscardHandler) })
}

// startMeasured starts a proxy in front of one engine of each role, which run starts and returns the URL of.
func startMeasured(b *testing.B, run func(upstream.Role) string, change func(*server.Config, *server.Deps)) (front string, stop func()) {
	b.Helper()
	var instances []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		instance, err := upstream.NewInstance(role, role.String(), run(role))
		if err != nil {
			b.Fatal(err)
		}
		instance.KVTTL = 480 * time.Second
		instances = append(instances, instance)
	}
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: patience})
	secret, err := convcache.RandomSecret()
	if err != nil {
		b.Fatal(err)
	}
	cfg := defaults(&logBook{})
	cfg.ReuseMinShare = 0.5
	deps := newDeps(client, newFleet(client, nil, instances...), secret)
	change(&cfg, &deps)
	proxy := httptest.NewUnstartedServer(server.New(cfg, deps).Handler())
	proxy.Config.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Start()
	return proxy.URL, func() {
		proxy.Close()
		client.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}
