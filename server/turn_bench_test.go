package server_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/journal"
	"carryover/upstream"
)

// quick is an engine that answers any prompt at once: 16 chunks in one write, and params of a handful of blocks. It takes no ids, so
// that nothing hits.
type quick struct{ role upstream.Role }

const (
	quickTokens = 64
	quickChunks = 16
)

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

// BenchmarkTurn is short turns and long first messages, eight clients for each processor. Clients and engines are in the same process, so that only
// differences between two runs say something of the proxy.
func BenchmarkTurn(b *testing.B) {
	for name, size := range map[string]int{"W1": 4 << 10, "W3": 256 << 10} {
		line := `A line of prose, as people write it, of about a hundred bytes with the newline that ends it here.\n`
		turn := `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat(line, size/len(line)) +
			`"},{"role":"assistant","content":"` + strings.Repeat("word ", quickChunks-2) + `."},{"role":"user","content":"and?"}]}`
		for _, known := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/conversation=%t", name, known), func(b *testing.B) {
				front, n := startQuick(b), atomic.Int64{}
				b.ReportAllocs()
				b.SetParallelism(8)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, front+chatPath, strings.NewReader(turn))
						if err != nil {
							b.Error(err)
							return
						}
						req.Header.Set("Content-Type", "application/json")
						if known {
							req.Header.Set("X-Conversation-Id", fmt.Sprint(n.Add(1)))
						}
						resp, err := http.DefaultClient.Do(req)
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						if reuse := resp.Header.Get("X-KV-Reuse"); !strings.HasPrefix(reuse, "miss;") {
							b.Errorf("got %q", reuse)
						}
					}
				})
			})
		}
	}
}

// startQuick starts a proxy in front of one engine of each role.
func startQuick(b *testing.B) (front string) {
	b.Helper()
	var instances []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		engine := httptest.NewServer(quick{role})
		b.Cleanup(engine.Close)
		instance, err := upstream.NewInstance(role, role.String(), engine.URL)
		if err != nil {
			b.Fatal(err)
		}
		instance.KVTTL = 480 * time.Second
		instances = append(instances, instance)
	}
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: patience})
	b.Cleanup(client.Close)
	secret, err := convcache.RandomSecret()
	if err != nil {
		b.Fatal(err)
	}
	cfg := defaults(&logBook{})
	cfg.ReuseMinShare, cfg.ReuseMinTokens = 0.5, 1
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil)) //nolint:sloglint // lines are put together, and count
	deps := newDeps(client, newFleet(client, nil, instances...), secret)
	deps.Observers = append(deps.Observers, journal.New(journal.Config{}).Observe)
	proxy := httptest.NewServer(server.New(cfg, deps).Handler())
	b.Cleanup(proxy.Close)
	b.Cleanup(http.DefaultClient.CloseIdleConnections)
	return proxy.URL
}
