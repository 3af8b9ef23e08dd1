package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"carryover/sse/rawjson"
)

const params = "kv_transfer_params"

var errBroken = errors.New("connection reset")

// outcome is all that a caller can see of a relay.
type outcome struct {
	Out      string
	Events   []string // data, NUL, member, and of each edit whether it was accepted
	Stopped  bool
	Oversize int64
	MidEvent bool
}

func (o outcome) String() string {
	return fmt.Sprintf("out %+q, events %+q, stopped %t, oversize %d, mid-event %t", o.Out, o.Events, o.Stopped, o.Oversize, o.MidEvent)
}

// pieces returns a reader that hands out input in pieces whose sizes come from seed, and then err, with the last piece
// or after it.
func pieces(input []byte, seed uint64, err error) io.Reader {
	rnd := rand.New(rand.NewPCG(seed, 1))
	limit := []int{1, 2, 7, 64, 5000}[rnd.IntN(5)]
	return readFunc(func(p []byte) (int, error) {
		n := min(len(p), len(input), rnd.IntN(limit+1))
		copy(p, input[:n])
		input = input[n:]
		if len(input) == 0 && (n == 0 || rnd.IntN(2) == 0) {
			return n, err
		}
		return n, nil
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// relayed runs the real thing.
func relayed(t *testing.T, src io.Reader, cfg Config, seed uint64) outcome {
	t.Helper()
	var got outcome
	var out strings.Builder
	cfg.Observe = func(e Event) Verdict {
		event := string(e.Data) + "\x00" + string(e.Member)
		with := make([]byte, 0, 1000)
		for _, r := range replacementsOf(string(e.Data), seed) {
			with = append(with[:0], r.with...)
			event += fmt.Sprint(" ", e.Replace(r.from, r.to, with))
		}
		got.Events = append(got.Events, event)
		return verdictOf(e.Data)
	}
	r := New(&out, nil, cfg)
	err := r.Run(src)
	var read *ReadError
	if errors.Is(err, ErrStopped) || errors.Is(err, ErrOversize) {
		got.Stopped = true
		if refused := cfg.Bounded && r.Stats().Oversize > 0; refused != errors.Is(err, ErrOversize) {
			t.Errorf("Run: got %v with %d events that are too long", err, r.Stats().Oversize)
		}
	} else if err != nil && !errors.As(err, &read) {
		t.Fatalf("Run: %v", err)
	}
	stats := r.Stats()
	if want := int64(len(got.Events)); stats.Events != want {
		t.Errorf("Stats.Events = %d, want %d", stats.Events, want)
	}
	if want := int64(out.Len()); stats.Bytes != want {
		t.Errorf("Stats.Bytes = %d, want %d", stats.Bytes, want)
	}
	got.Out, got.Oversize, got.MidEvent = out.String(), stats.Oversize, stats.MidEvent
	return got
}

// compare checks one input under one configuration and one way of splitting it.
func compare(t *testing.T, input []byte, seed uint64) {
	t.Helper()
	cfg := Config{Strip: params, MaxEvent: []int{DefaultMaxEvent, 0, 20, 150}[seed>>1&3], Bounded: seed&64 != 0}
	if seed&8 != 0 {
		cfg.Substance = []string{"choices", "usage", params}
	}
	err, broken := io.EOF, seed&16 != 0
	if broken {
		err = errBroken
	}
	rules := cfg
	if cfg.MaxEvent == 0 {
		rules.MaxEvent = DefaultMaxEvent
	}
	rules.Substance = slices.DeleteFunc(slices.Clone(cfg.Substance), func(s string) bool { return s == params })
	want := reference(string(input), rules, broken, seed)
	got := relayed(t, pieces(input, seed, err), cfg, seed)
	if got.String() != want.String() {
		t.Errorf("seed %d, input %+q:\n got %v\nwant %v", seed, input, got, want)
	}
}

// vocabulary is what random streams are made of: line ends, fields and JSON in all the forms that matter.
var vocabulary = []string{
	"\n", "\n", "\r", "\r\n", "\n\n", "\r\r", "\r\n\r\n", ":", ": ping", "\xef\xbb\xbf", "\x00", "é", "😀",
	"data: ", "data:", "data", "data:\t", " data: ", "Data: ", "event: x", "id: 1\x00", "retry: 5", "hold", "drop", "stop",
	`{"kv_transfer_params":{"a":[1,"}"]}}`, `{"choices":[1],"kv_transfer_params":{"a":1}}`, `"kv_transfer_params"`,
	`{"kv_tran\u0073fer_params":null,"usage":{}}`, `{"x":1,"kv_transfer_params":1,"kv_transfer_params":2 , "y":[ ]}`,
	`{"x":"stop","kv_transfer_params":1}`, `{"x":"hold","usage":1,"kv_transfer_params":1}`, `{"x":"drop","kv_transfer_params":1}`,
	"data: {\ndata: \"kv_transfer_params\":\rdata: 1,\r\ndata: \"choices\":[1]}\n\n", "data:{\"usage\":1\n: ping\ndata:,\"kv_transfer_params\"\ndata::1\ndata:}\n\n",
	`{"choices":[{"kv_transfer_params":{"a":1}}]}`, `{"text":"\"kv_transfer_params\":{}"}`, "{", "}", ",", `"x":`, "1", "[DONE]",
	"data: super\n\n", "data: await\r\n\r\n", "data: hold\r\n\r\n", "data: a\n\n: ping\n", ": ping\r\n\r\n", ": a comment longer than twenty bytes",
	"edit", "[5]", "data: [5]\n\n", "data: [5][5][5]\r\n\r\n", `{"choices":[5],"kv_transfer_params":[5],"usage":[1]}`, "data: edit {\ndata: \"x\":[5]\ndata: }\n\n",
	"data: {\"choices\":[{\"a\":[5]}],\"kv_transfer_params\":null}\n\n", "data:{\"kv_transfer_params\":1,\"x\":[{}],\"kv_transfer_params\":null}\r\n\r\n",
	`{"x":"hold","usage":[{"a":1}]`, `{"x":"edit drop","choices":[{}]`, `}],"kv_transfer_params":null}`, `,"kv_transfer_params":null}`, ",\"kv_transfer_params\":null}\nid: 1\n\n",
	"data: {\"x\":\"edit\",\"kv_transfer_params\":1,\"usage\":{\"a\":[1]}}\n\n", "data: {\"x\":\"hold\",\"usage\":[5]}\n\n",
}

func TestRelay_EqualsReferenceForRandomStreams(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(4000) {
		var input []byte
		for range rnd.IntN(20) {
			input = append(input, vocabulary[rnd.IntN(len(vocabulary))]...)
		}
		compare(t, input, seed)
		if t.Failed() {
			return
		}
	}
}

func TestRelay_EqualsReferenceForRecordedStreams(t *testing.T) {
	for name, stream := range recorded(t) {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(128) {
				compare(t, stream, seed)
			}
			for _, seed := range []uint64{0, 32} {
				want := reference(string(stream), Config{Strip: params, MaxEvent: DefaultMaxEvent}, false, seed)
				got := relayed(t, iotest.OneByteReader(bytes.NewReader(stream)), Config{Strip: params}, seed)
				if got.String() != want.String() {
					t.Errorf("byte by byte, seed %d:\n got %v\nwant %v", seed, got, want)
				}
			}
		})
	}
}

// recorded returns the streams of vLLM under testdata.
func recorded(tb testing.TB) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(files) < 3 {
		tb.Fatalf("recorded streams: %d files, error %v", len(files), err)
	}
	streams := make(map[string][]byte)
	for _, file := range files {
		stream, err := os.ReadFile(file)
		must(tb, err)
		streams[strings.TrimSuffix(filepath.Base(file), ".sse")] = stream
	}
	return streams
}

// tooDeep reports whether brackets are nested deeper than JSON is read: what is nested there is cut without being checked,
// while the references check all of it.
func tooDeep(input []byte) bool {
	open := 0
	for _, c := range input {
		switch c {
		case '[', '{':
			if open++; open > rawjson.MaxDepth {
				return true
			}
		case ']', '}':
			open = max(open-1, 0)
		}
	}
	return false
}

// membered is events from which the member is cut, under any spelling of its name and with its comma, or which stay as they are.
var membered = []string{
	`data: {"choices":[{"finish_reason":"stop"}],"kv_transfer_params":{"a":[[1,2]]}}`,               // on the finish chunk
	`data: {"kv_transfer_params":{"a":[[1,2]]},"choices":[1]}`,                                      // first
	`data: {"id": 1, "kv_transfer_params" : {"a":[[1,2]]} , "usage": {"a":1}}`,                      // in the middle, with spaces
	`data: {"kv_transfer_params":1,"kv_transfer_params":2,"usage":{"a":1},"kv_transfer_params":3}`,  // twice, the last counts
	`data: {"choices":[1],"kv_tran\u0073fer_params":{"a":[[1,2]]}}`,                                 // name spelled with an escape
	`data: {"\u006bv_transfer_params":1,"choices":[1],"kv_transfer_params":2}`,                      // name spelled in escapes only in part, twice
	`data:{"choices":[1],"kv_transfer_params":{"a":[[1,2]]}}`,                                       // without space after the colon
	"event: message\r\ndata: {\"kv_transfer_params\":{\"a\":[[1,2]]},\"choices\":[1]}\r\n\r\n",      // typed event with CRLF
	"data: {\"choices\":[1],\ndata: \"kv_transfer_params\":{\"a\":\ndata:1}\ndata: }",               // over two data lines
	"data: {\ndata: \"kv_transfer_params\":1,\ndata: \"choices\":[1]}",                              // first, at the beginning of a data line
	"data: {\"kv_transfer_params\":\r: ping\rdata: 7,\"choices\":[1]}\r\r",                          // over CR lines with a comment between
	`data: {"id":"x","choices":[],"kv_transfer_params":{"a":[[1,2]]}}`,                              // no choices, no usage: dropped whole
	"data: {\"kv_transfer_params\":{\"a\":[[1,2]]}}\r\n\r\n",                                        // alone: dropped whole
	"data: {\"choices\":[ ],\"usage\":{ },\"error\":null,\"kv_transfer_params\":1}\r\r",             // empty substance of all kinds
	`data: {"error":{"code":500},"kv_transfer_params":1}`,                                           // an error is substance
	`data: {"usage":0,"kv_transfer_params":1}`,                                                      // substance as a number
	`data: {"choices":[{"a":"é"}],"kv_transfer_params":null}`,                                       // at the end of a chunk
	"data: {\"choices\":[{\"a\":\"é\"}],\"kv_transfer_params\":null}\r\n\r\n",                       // with CRLF
	"data: {\"choices\":[{\"a\":\"é\"}],\"kv_transfer_params\":null}\r\r",                           // with lone CRs
	`data:{"choices":[{"a":"é"}],"kv_transfer_params":null}`,                                        // without space after the colon
	": c\nevent: x\ndata: {\"choices\":[{\"a\":\"é\"}],\"kv_transfer_params\":null}\r\nid: 1",       // between other lines
	"data: {\"choices\":[{\"a\":\"é\"}]\ndata: ,\"kv_transfer_params\":null}",                       // on the second data line
	"data: {\"a\":1,\ndata: \"choices\":[{}],\"kv_transfer_params\":null}",                          // at the end of a second data line
	`data: {"kv_transfer_params":null,"choices":[{}]}`,                                              // first
	`data: {"choices":[{"a":"é"}] , "kv_transfer_params" : null }`,                                  // with spaces
	`data: {"choices":[{"a":"é"}],"kv_tran\u0073fer_params":null}`,                                  // with an escape in its name
	`data: {"choices":[{"a":"é"}],"system_fingerprint":"f","kv_transfer_params":null}`,              // behind another member
	`data: {"choices":[{"a":"é"}],"kv_transfer_params":null,"kv_transfer_params":null}`,             // twice
	`data: {"kv_transfer_params":{"a":1},"choices":[{}],"kv_transfer_params":null}`,                 // behind one that is not null
	`data: {"kv_tran\u0073fer_params":{"a":1},"choices":[{}],"kv_transfer_params":null}`,            // behind one that is not null, in escapes
	`data: {"id":"x","choices":[],"kv_transfer_params":null}`,                                       // beside nothing of substance
	`data: {"kv_transfer_params":null}`,                                                             // alone
	`data: {"choices":[{"delta":{"content":"\"kv_transfer_params\":{\"remote_host\":\"evil\"}"}}]}`, // escaped in a string
	`data: {"choices":["x"],"a":"kv_transfer_params"}`,                                              // unescaped text of a string
	`data: {"choices":[{"kv_transfer_params":{"remote_host":"evil"}}]}`,                             // in a choice
	`data: {"choices":[{"delta":{"kv_tran\u0073fer_params":1}}]}`,                                   // in a delta, escaped name
	`data: {"usage":{"kv_transfer_params":1}}`,                                                      // in usage
	`data: [{"kv_transfer_params":1}]`,                                                              // in an array
	`data: "kv_transfer_params"`,                                                                    // a string as a whole
	`data: {"choices":["\n\ndata: {\"kv_transfer_params\":1}\n\n"]}`,                                // content that looks like an event
	`data: {"kv_transfer_params":{"a":1},}`,                                                         // not JSON
	`data: {"kv_transfer_params":1} x`,                                                              // JSON and more
	`: {"kv_transfer_params":1}`,                                                                    // in a comment
	"event: {\"kv_transfer_params\":1}\ndata: x",                                                    // in another field
	`data: {"KV_transfer_params":1}`,                                                                // name in another case
	`data: {"choices":[{"kv_transfer_params":null}]}`,                                               // in the list, null
	`data: {"choices":[{"a":"é"}],"KV_transfer_params":null}`,                                       // of another name, null
	`data: [[{}],"kv_transfer_params":null}`,                                                        // in a list that is no object, null
	`data: {"a":"}],\"kv_transfer_params\":null}"}`,                                                 // in a string, null
}

func FuzzRelay(f *testing.F) {
	for _, event := range membered {
		for seed := range uint64(16) { // whole, in pieces, with and without substance
			f.Add([]byte("data: {\"choices\":[0]}\r\n\r\n"+ended(event)+": ping\n\ndata: {\"choices\":[7]}\n\ndata: [DONE]\n\n"), seed)
		}
	}
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		if !tooDeep(input) {
			compare(t, input, seed)
		}
	})
}
