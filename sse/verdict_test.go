package sse

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

func TestRelay_Verdicts(t *testing.T) {
	pad := strings.Repeat("x", 100)
	ends, breaks, stops := [2]error{io.EOF}, [2]error{errBroken, errBroken}, [2]error{io.EOF, ErrStopped}
	for _, tc := range []struct {
		name, input, want string
		end               [2]error // of the stream, and of Run
	}{
		{"held bytes go out before the next forwarded event", "data:hold\n\ndata:b\n\n", "data:hold\n\ndata:b\n\n", breaks},
		{"several held", "data:hold1\n\ndata:hold2\n\ndata:b\n\n", "data:hold1\n\ndata:hold2\n\ndata:b\n\n", breaks},
		{"held at a clean end", "data:a\n\ndata:hold\n\n", "data:a\n\ndata:hold\n\n", ends},
		{"held and an unfinished event at a clean end", "data:hold\n\ndata:b", "data:hold\n\ndata:b", ends},
		{"held at a read error", "data:a\n\ndata:hold\n\ndata:x", "data:a\n\n", breaks},
		{"held, then stopped", "data:a\n\ndata:hold\n\ndata:stop\n\ndata:b\n\n", "data:a\n\n", stops},
		{"stopped at the last bytes", "data:a\n\ndata:stop\n\n", "data:a\n\n", stops},
		{"stopped before a read error", "data:stop\n\n", "", [2]error{errBroken, ErrStopped}},
		{"held, then dropped", "data:hold\n\ndata:drop\n\ndata:a\n\n", "data:hold\n\ndata:a\n\n", ends},
		{"a comment passes the held event", "data:hold\n\n: ping\n\ndata:stop\n\n", ": ping\n\n", stops},
		{"a comment before it does not wait", ": ping\n\ndata:hold\n\ndata:stop\n\n", ": ping\n\n", stops},
		{"nothing waits after the held event is out", "data:hold\n\ndata:a\n\n: ping\n\n", "data:hold\n\ndata:a\n\n: ping\n\n", breaks},
		{"LF of a dropped event", "data:drop\r\n\r\ndata:a\n\n", "data:a\n\n", ends},
		{"LF of a held event", "data:hold\r\n\r\ndata:stop\n\n", "", stops},
		{"byte order mark of a dropped event stays", "\xef\xbb\xbfdata:drop\n\n\xef\xbb\xbfdata:a\n\n", "\xef\xbb\xbf\xef\xbb\xbfdata:a\n\n", ends},
		{"byte order mark waits", "\xef\xbb\xbfdata:stop\n\n", "", stops},
		{"an oversize event takes the held ones along", "data:hold\n\ndata:" + pad + "\n\ndata:stop\n\n", "data:hold\n\ndata:" + pad + "\n\n", stops},
		{"more held than an event may have", strings.Repeat("data:hold\n\n", 6) + "data:stop\n\n", strings.Repeat("data:hold\n\n", 6), stops},
		{"as much held as an event may have", strings.Repeat("data:hold\n\n", 5) + "data:stop\n\n", "", stops},
		{"a cut event is held without its member", `data:{"usage":"hold","kv_transfer_params":2}` + "\n\ndata:a\n\n", `data:{"usage":"hold"}` + "\n\ndata:a\n\n", ends},
		{"a cut event without substance stops all the same", `data:{"stop":1,"kv_transfer_params":2}` + "\n\ndata:a\n\n", "", stops},
		{"a cut event without substance is not held", `data:{"hold":1,"kv_transfer_params":2}` + "\n\n", "", ends},
		{"a cut event is dropped", `data:{"usage":"drop","kv_transfer_params":2}` + "\n\ndata:" + pad + "\n\n", "data:" + pad + "\n\n", ends},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, split := range []func(io.Reader) io.Reader{
				func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader,
			} {
				src := split(io.MultiReader(strings.NewReader(tc.input), iotest.ErrReader(tc.end[0])))
				var out strings.Builder
				r := New(&out, nil, Config{Strip: params, Substance: []string{"usage"}, MaxEvent: 55, Observe: func(e Event) Verdict { return verdictOf(e.Data) }})
				if err := r.Run(src); !errors.Is(err, tc.end[1]) || (err != nil && tc.end[1] == nil) {
					t.Errorf("Run: got %v, want %v", err, tc.end[1])
				}
				if got := out.String(); got != tc.want {
					t.Errorf("relayed:\n got %q\nwant %q", got, tc.want)
				}
			}
		})
	}
}

// vLLM sends the role chunk even when loading the KV failed; the caller holds it and can still run the turn again when
// the next event is the error.
func TestRelay_NothingOfARecordedFailureReachesTheClient(t *testing.T) {
	var out strings.Builder
	first := true
	r := New(&out, nil, Config{Strip: params, Observe: func(e Event) Verdict {
		if first {
			first = false
			return Hold
		}
		if strings.HasPrefix(string(e.Data), `{"error"`) {
			return Stop
		}
		return Forward
	}})
	err := r.Run(strings.NewReader(string(recorded(t)["vllm-0.32-chat-error"])))
	if !errors.Is(err, ErrStopped) || out.Len() != 0 || r.Stats().Bytes != 0 {
		t.Errorf("Run = %v, wrote %q, Stats.Bytes %d; want ErrStopped and nothing written", err, out.String(), r.Stats().Bytes)
	}
}

// What awaits the next event goes out when its time is over, although no read has returned, and nothing of it a second time.
func TestRelay_AwaitsForAWhile(t *testing.T) {
	for name, fails := range map[string]error{"client": nil, "client that left": io.ErrClosedPipe} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, engine := io.Pipe()
				got, client := io.Pipe()
				if fails != nil {
					_ = got.Close()
				}
				seen, began := "", time.Now()
				r := New(client, nil, Config{Patience: time.Second, Observe: func(e Event) Verdict { seen += string(e.Data); return verdictOf(e.Data) }})
				ended := make(chan error)
				go func() {
					err := r.Run(from)
					_ = client.Close()
					ended <- err
				}()
				go func() {
					_, _ = io.WriteString(engine, "data: await\n\nda")
					<-time.After(time.Hour)
					_, _ = io.WriteString(engine, "ta: a\n\n")
					_ = engine.Close()
				}()
				first := make([]byte, 100)
				n, _ := got.Read(first)
				waited := time.Since(began)
				rest, _ := io.ReadAll(got)
				if err := <-ended; !errors.Is(err, fails) || seen != "awaita" {
					t.Errorf("got %v of %q, want %v", err, seen, fails)
				}
				if fails == nil && (string(first[:n]) != "data: await\n\n" || waited != time.Second || string(rest) != "data: a\n\n") {
					t.Errorf("got %q after %v and then %q", first[:n], waited, rest)
				}
			})
		})
	}
}
