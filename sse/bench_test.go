package sse

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// chunks returns n chunks as vLLM streams them, one token each.
func chunks(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = fmt.Appendf(nil, `data: {"id":"chatcmpl-0f8fad5b-d9cb-469f-a165-70867728950e","object":"chat.completion.chunk","created":1795271341,"model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":0,"delta":{"content":" token%d"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`+"\n\n", i)
	}
	return all
}

// nullChunks returns n chunks as vLLM 0.33 streams them.
func nullChunks(n int) [][]byte {
	all := chunks(n)
	for i, chunk := range all {
		all[i] = bytes.Replace(chunk, []byte("}]}"), []byte(`}],"kv_transfer_params":null}`), 1)
	}
	return all
}

// idChunks returns n chunks as vLLM streams them if it is asked for ids, behind the first chunk with those of a prompt of
// 1,000 tokens.
func idChunks(n int) [][]byte {
	first := strings.Replace(firstChunk, "[1,87,1892]", "[1"+strings.Repeat(",12345", 999)+"]", 1)
	all := [][]byte{[]byte("data: " + first + "\n\n")}
	for i, chunk := range chunks(n) {
		all = append(all, bytes.Replace(chunk, []byte(`"token_ids":null`), fmt.Appendf(nil, `"token_ids":[%d]`, 1000+i%9000), 1))
	}
	return all
}

// replay is a reader that hands out one piece per read, and can be started again without allocating.
type replay struct {
	pieces [][]byte
	i, off int
}

func (r *replay) Read(p []byte) (int, error) {
	if r.i == len(r.pieces) {
		return 0, io.EOF
	}
	n := copy(p, r.pieces[r.i][r.off:])
	if r.off += n; r.off == len(r.pieces[r.i]) {
		r.i, r.off = r.i+1, 0
	}
	return n, nil
}

func TestRelay_PlainEventsCostNoAllocation(t *testing.T) {
	for name, event := range map[string][]byte{
		"chunk":                   chunks(1)[0],
		"CRLF":                    []byte("data: {\"choices\":[1]}\r\n\r\n"),
		"two data lines":          []byte("data: {\ndata: }\n\n"),
		"comment":                 []byte(": ping\n\n"),
		"name inside of a string": []byte(`data: {"choices":["\"kv_transfer_params\":{} \u001b"]}` + "\n\n"),
		"null that is cut":        nullChunks(1)[0],
		"ids nulled, null cut":    bytes.Replace(nullChunks(1)[0], []byte(`"token_ids":null`), []byte(`"token_ids":[5]`), 1),
		"member that is cut":      []byte(`data: {"choices":[1],"kv_transfer_params":{"a":[1,2,3]}}` + "\n\n"),
		"ids nulled, grows":       idChunks(1)[1],
		"ids nulled, shrinks":     []byte("data: " + firstChunk + "\n\n"),
		"ids nulled and cut":      []byte(`data: {"choices":[{"token_ids":[5]}],"kv_transfer_params":{"a":[1,2,3]}}` + "\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			allocs := func(events int) float64 {
				src := &replay{pieces: make([][]byte, events)}
				for i := range src.pieces {
					src.pieces[i] = event
				}
				return testing.AllocsPerRun(5, func() {
					src.i, src.off = 0, 0
					r := New(io.Discard, nil, Config{Strip: params, Substance: []string{"choices"}, Observe: nullIDs})
					if err := r.Run(src); err != nil {
						t.Errorf("Run: %v", err)
					}
				})
			}
			few, many := allocs(10), allocs(2010)
			// A garbage collection may empty the pool of encoding/json's scanners.
			if perEvent := (many - few) / 2000; perEvent > 0.005 {
				t.Errorf("allocations per event: got %.3f, want 0 (%.0f for 10 events, %.0f for 2010)", perEvent, few, many)
			}
			if few > 12 {
				t.Errorf("allocations of a whole relay: got %.0f, want at most 12", few)
			}
		})
	}
}

func BenchmarkRelay(b *testing.B) {
	plain := append(chunks(500), []byte("data: [DONE]\n\n"))
	final := append(chunks(500), paramsEvent(100<<10), []byte("data: [DONE]\n\n"))
	ids := append(idChunks(500), []byte("data: [DONE]\n\n"))
	nulls := append(nullChunks(500), []byte("data: [DONE]\n\n"))
	forward := func(Event) Verdict { return Forward }
	for _, bc := range []struct {
		name    string
		pieces  [][]byte
		observe func(Event) Verdict
	}{
		{"chunk per read", plain, forward},
		{"chunk per read, null cut", nulls, forward},
		{"chunk per read, params of 100 KB", final, forward},
		{"chunk per read, ids as they are", ids, forward},
		{"chunk per read, ids nulled", ids, nullIDs},
		{"4 KiB reads", [][]byte{bytes.Join(plain, nil)}, forward},
		{"4 KiB reads, null cut", [][]byte{bytes.Join(nulls, nil)}, forward},
		{"4 KiB reads, params of 100 KB", [][]byte{bytes.Join(final, nil)}, forward},
		{"4 KiB reads, ids as they are", [][]byte{bytes.Join(ids, nil)}, forward},
		{"4 KiB reads, ids nulled", [][]byte{bytes.Join(ids, nil)}, nullIDs},
	} {
		b.Run(bc.name, func(b *testing.B) {
			src := &replay{pieces: bc.pieces}
			var events int64
			b.SetBytes(int64(len(bytes.Join(bc.pieces, nil))))
			b.ReportAllocs()
			for b.Loop() {
				src.i, src.off = 0, 0
				r := New(io.Discard, nil, Config{Strip: params, Substance: []string{"choices", "usage"}, Observe: bc.observe})
				must(b, r.Run(src))
				events += r.Stats().Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
		})
	}
}
