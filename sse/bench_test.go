package sse

import (
	"bytes"
	"fmt"
	"io"
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
		"member that is cut":      []byte(`data: {"choices":[1],"kv_transfer_params":{"a":[1,2,3]}}` + "\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			allocs := func(events int) float64 {
				src := &replay{pieces: make([][]byte, events)}
				for i := range src.pieces {
					src.pieces[i] = event
				}
				return testing.AllocsPerRun(20, func() {
					src.i, src.off = 0, 0
					r := New(io.Discard, nil, Config{Strip: params, Substance: []string{"choices"}, Observe: func(Event) Verdict { return Forward }})
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
			if few > 10 {
				t.Errorf("allocations of a whole relay: got %.0f, want at most 10", few)
			}
		})
	}
}

func BenchmarkRelay(b *testing.B) {
	plain := append(chunks(500), []byte("data: [DONE]\n\n"))
	final := append(chunks(500), paramsEvent(100<<10), []byte("data: [DONE]\n\n"))
	for _, bc := range []struct {
		name   string
		pieces [][]byte
	}{
		{"chunk per read", plain},
		{"chunk per read, params of 100 KB", final},
		{"4 KiB reads", [][]byte{bytes.Join(plain, nil)}},
		{"4 KiB reads, params of 100 KB", [][]byte{bytes.Join(final, nil)}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			src := &replay{pieces: bc.pieces}
			var events int64
			b.SetBytes(int64(len(bytes.Join(bc.pieces, nil))))
			b.ReportAllocs()
			for b.Loop() {
				src.i, src.off = 0, 0
				r := New(io.Discard, nil, Config{Strip: params, Substance: []string{"choices", "usage"}, Observe: func(Event) Verdict { return Forward }})
				if err := r.Run(src); err != nil {
					b.Fatal(err)
				}
				events += r.Stats().Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
		})
	}
}

func BenchmarkCut(b *testing.B) {
	event := paramsEvent(100 << 10)
	object := event[len("data: "):]
	b.SetBytes(int64(len(object)))
	for b.Loop() {
		if _, _, found := Cut(object, params); !found {
			b.Fatal("member not found")
		}
	}
}
