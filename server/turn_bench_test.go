package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/journal"
	"carryover/upstream"
)

// quickVariable makes the test binary a quick engine of the role that it names, in a process of its own.
const quickVariable = "CARRYOVER_TEST_QUICK_ENGINE"

// quick is an engine that answers any prompt at once: 16 chunks in one write, and params of a handful of blocks. It takes no ids, so
// that nothing hits.
type quick struct{ role upstream.Role }

const (
	quickTokens = 64
	quickChunks = 16
)

func serveQuick() int {
	role := upstream.RolePrefill
	if os.Getenv(quickVariable) == upstream.RoleDecode.String() {
		role = upstream.RoleDecode
	}
	engine := httptest.NewServer(quick{role})
	defer engine.Close()
	fmt.Println(engine.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// ServeHTTP implements http.Handler.
func (e quick) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	id := r.Header.Get("X-Request-Id")
	switch {
	case r.URL.Path == "/metrics":
		_, _ = io.WriteString(w, "process_start_time_seconds 1.5e+09\nvllm:cache_config_info{block_size=\"16\"} 1\n")
	case r.URL.Path == "/tokenize", strings.HasSuffix(r.URL.Path, "/render"):
		w.WriteHeader(http.StatusNotFound)
	case e.role == upstream.RolePrefill:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"chatcmpl-%s","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"length"}],`+
			`"usage":{"prompt_tokens":%d},"kv_transfer_params":%s}`, id, quickTokens, quickParams(id, true))
	default:
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		var b bytes.Buffer
		chunk := func(choice, rest string) {
			fmt.Fprintf(&b, "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,%s}]%s}\n\n", id, choice, rest)
		}
		chunk(`"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null`, "")
		for range quickChunks - 2 {
			chunk(`"delta":{"content":"word "},"logprobs":null,"finish_reason":null`, "")
		}
		chunk(`"delta":{"content":"."},"logprobs":null,"finish_reason":"stop","stop_reason":null`, `,"kv_transfer_params":`+quickParams(id, false))
		b.WriteString("data: [DONE]\n\n")
		_, _ = w.Write(b.Bytes())
	}
}

func quickParams(id string, prefill bool) string {
	return fmt.Sprintf(`{"do_remote_prefill":%v,"do_remote_decode":%v,"remote_block_ids":[[11,12,13,14]],"remote_engine_id":"e","remote_request_id":"r-%s",`+
		`"remote_host":"10.0.0.1","remote_port":5600,"tp_size":1,"remote_num_tokens":%d,"remote_blocks_expiry_time":1.5}`, prefill, !prefill, id, quickTokens)
}

// BenchmarkTurn is short turns and long first messages, eight clients at a time. cpu-µs/op is client and proxy; the engines are processes of their own.
func BenchmarkTurn(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"W1", 4 << 10}, {"W3", 256 << 10}} {
		b.Run(size.name+"/no conversation", func(b *testing.B) { benchWorkload(b, size.bytes, false) })
		b.Run(size.name+"/conversation", func(b *testing.B) { benchWorkload(b, size.bytes, true) })
	}
}

// benchWorkload is one kind of turn: the later one of a conversation, of a body of about so many bytes.
func benchWorkload(b *testing.B, size int, known bool) {
	b.Helper()
	front, stop := startQuick(b)
	defer stop()
	question := `{"role":"user","content":"` + strings.Repeat("A line of prose, as people write it, of about a hundred bytes with the newline that ends it here.\\n", size/99) + `"}`
	members := `{"model":"m","stream":true,"temperature":0.7,"messages":[{"role":"system","content":"You are of help."},`
	said := strings.Repeat("word ", quickChunks-2) + "."
	first := members + question + `]}`
	later := members + question + `,{"role":"assistant","content":"` + said + `"},{"role":"user","content":"and?"}]}`

	const clients = 8
	turns := make(chan func(c *benchClient), clients)
	done := make(chan error, clients)
	for range clients {
		c, err := newBenchClient(front)
		if err != nil {
			b.Fatal(err)
		}
		defer c.conn.Close()
		go func() {
			for turn := range turns {
				turn(c)
			}
			done <- c.err
		}()
	}
	var wrong atomic.Int64
	run := func(n int, body, want string) {
		var left atomic.Int64
		left.Store(int64(n))
		all := make(chan struct{})
		for i := range n {
			turns <- func(c *benchClient) {
				id := ""
				if known {
					id = fmt.Sprint(i)
				}
				if reuse := c.turn(id, body); !strings.HasPrefix(reuse, want) {
					wrong.Add(1)
				}
				if left.Add(-1) == 0 {
					close(all)
				}
			}
		}
		<-all
	}
	const want = "miss;"
	run(1, first, "")
	run(1, later, "")
	before := cpuTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	run(b.N, later, want)
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	close(turns)
	for range clients {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	if n := wrong.Load(); n > 0 {
		b.Fatalf("%d turns without %q", n, want)
	}
}

// benchClient speaks just as much HTTP as costs little.
type benchClient struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	err  error
}

func newBenchClient(front string) (*benchClient, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(front, "http://"))
	return &benchClient{conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}, err
}

// turn sends a body and reads the stream, and returns X-KV-Reuse. The first failure stays in c.err.
func (c *benchClient) turn(id, body string) (reuse string) {
	if c.err != nil {
		return ""
	}
	c.out = fmt.Appendf(c.out[:0], "POST "+chatPath+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	if id != "" {
		c.out = fmt.Appendf(c.out, "X-Conversation-Id: %s\r\n", id)
	}
	c.out = append(append(c.out, "\r\n"...), body...)
	if _, c.err = c.conn.Write(c.out); c.err != nil {
		return ""
	}
	for {
		var line []byte
		line, c.err = c.in.ReadSlice('\n')
		switch {
		case c.err != nil:
			return ""
		case bytes.HasPrefix(line, []byte("X-KV-Reuse: ")):
			reuse = string(line[len("X-KV-Reuse: "):])
		case string(line) == "0\r\n":
			_, c.err = c.in.ReadSlice('\n')
			return reuse
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// runQuick runs the test binary as an engine of a role, and returns its URL.
func runQuick(b *testing.B, role upstream.Role) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), quickVariable+"="+role.String())
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

// startQuick starts a proxy in front of one engine of each role.
func startQuick(b *testing.B) (front string, stop func()) {
	b.Helper()
	var instances []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		instance, err := upstream.NewInstance(role, role.String(), runQuick(b, role))
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
	cfg.ReuseMinShare, cfg.ReuseMinTokens = 0.5, 1
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil)) //nolint:sloglint // lines are put together, and count
	deps := newDeps(client, newFleet(client, nil, instances...), secret)
	deps.Observers = append(deps.Observers, journal.New(journal.Config{}).Observe)
	proxy := httptest.NewUnstartedServer(server.New(cfg, deps).Handler())
	proxy.Config.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Start()
	return proxy.URL, func() {
		proxy.Close()
		client.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}
