package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// playerVariable makes the test binary the engine of the benchmarks: a process of its own, so that the CPU time of the
// benchmark is that of the client alone.
const playerVariable = "CARRYOVER_TEST_PLAYER"

// chunkEvery is how often the engine says something in each stream.
const chunkEvery = 5 * time.Millisecond

// playEngine answers /v1/chat/completions with a short JSON answer, and /v1/completions with an endless stream of small
// chunks, or one that falls silent if its request says so, until its standard input ends.
func playEngine() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go playConn(conn)
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func playConn(conn net.Conn) {
	defer conn.Close()
	raw := `{"id":"x","kv_transfer_params":{"remote_block_ids":[[1,2,3]]},"usage":{"prompt_tokens":9}}`
	whole := fmt.Sprintf("HTTP/1.1 200 OK\r\ndate: x\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n%s", len(raw), raw)
	chunk := event("data: " + strings.Repeat("x", 250) + "\n\n")
	for from := bufio.NewReader(conn); ; {
		r, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == body.Chat.Path() {
			_, _ = io.WriteString(conn, whole)
			continue
		}
		_, err = io.WriteString(conn, streamHead)
		if r.Header.Get("X-Request-Id") == "silent" {
			_, _ = io.WriteString(conn, chunk)
			_, _ = from.ReadByte()
			return
		}
		for tick := time.Tick(chunkEvery); err == nil; <-tick {
			_, err = io.WriteString(conn, chunk)
		}
		return
	}
}

func startPlayer(b *testing.B) *Instance {
	b.Helper()
	command := exec.Command(os.Args[0]) //nolint:noctx // it ends with its input
	command.Env = append(os.Environ(), playerVariable+"=1")
	in, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = command.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	instance, err := NewInstance(RoleDecode, "player", "http://"+strings.TrimSpace(address))
	if err != nil {
		b.Fatal(err)
	}
	return &instance
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measured runs a benchmark, and reports CPU time per operation, which says more than wall time.
func measured(b *testing.B, run func(b *testing.B, client *Client, instance *Instance)) {
	b.Helper()
	instance := startPlayer(b)
	client := NewClient(ClientConfig{DialTimeout: time.Minute})
	defer client.Close()
	b.ReportAllocs()
	before := cpu()
	run(b, client, instance)
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}

func BenchmarkClient_Leg(b *testing.B) { benchmarkLeg(b, 3<<10) }

func benchmarkLeg(b *testing.B, size int) {
	b.Helper()
	r, err := body.ParseRequest(body.Chat, benchBody(size))
	if err != nil {
		b.Fatal(err)
	}
	measured(b, func(b *testing.B, client *Client, instance *Instance) {
		b.Helper()
		for range b.N {
			raw := r.PrefillBody(body.PrefillEdit{Members: benchParams()})
			if _, err := client.Prefill(context.Background(), Leg{Instance: instance, API: body.Chat, Body: raw, RequestID: "r"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// One operation is one chunk of one of many streams, each of which has to be waited for.
func BenchmarkClient_Chunk(b *testing.B) {
	const streams = 50
	measured(b, func(b *testing.B, client *Client, instance *Instance) {
		b.Helper()
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				stream, err := client.Decode(context.Background(), Leg{Instance: instance, API: body.Text, Body: rawjson.Pieces{[]byte(`{}`)}, RequestID: "r"}, minutes())
				if err != nil {
					b.Error(err)
					return
				}
				defer stream.Close()
				p := make([]byte, 4<<10)
				for n := b.N/streams + 1; n > 0; n-- {
					if _, err := stream.Read(p); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// benchBody returns a chat request of about size bytes.
func benchBody(size int) []byte {
	const line = `The lease of a block ends\nafter \"30 s\", caf\u00e9 or café; func f(x []byte) { return x[1:] }\n`
	return []byte(`{"model":"tiny","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat(line, 1+size/len(line)) + `"}]}`)
}

// benchParams is what NIXL adds to a prefill leg without a ticket.
func benchParams() []body.Member {
	return []body.Member{{
		Name:  "kv_transfer_params",
		Value: []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`),
	}}
}
