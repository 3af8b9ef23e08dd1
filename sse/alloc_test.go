package sse

import (
	"io"
	"strings"
	"testing"
)

// plainChunk is a chunk as vLLM streams them, one token each.
const plainChunk = "data: {\"id\":\"chatcmpl-0f8fad5b-d9cb-469f-a165-70867728950e\",\"object\":\"chat.completion.chunk\",\"created\":1795271341,\"model\":\"meta-llama/Llama-3.1-8B-Instruct\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n"

func TestRelay_PlainEventsCostNoAllocation(t *testing.T) {
	nullChunk := strings.Replace(plainChunk, "}]}", `}],"kv_transfer_params":null}`, 1) // of vLLM 0.33
	for name, event := range map[string]string{
		"chunk":                   plainChunk,
		"CRLF":                    "data: {\"choices\":[1]}\r\n\r\n",
		"two data lines":          "data: {\ndata: }\n\n",
		"comment":                 ": ping\n\n",
		"name inside of a string": "data: {\"choices\":[\"\\\"kv_transfer_params\\\":{} \\u001b\"]}\n\n",
		"null that is cut":        nullChunk,
		"ids nulled, null cut":    strings.Replace(nullChunk, `"token_ids":null`, `"token_ids":[5]`, 1),
		"member that is cut":      "data: {\"choices\":[1],\"kv_transfer_params\":{\"a\":[1,2,3]}}\n\n",
		"ids nulled, grows":       strings.Replace(plainChunk, `"token_ids":null`, `"token_ids":[5]`, 1),
		"ids nulled, shrinks":     "data: " + firstChunk + "\n\n",
		"ids nulled and cut":      "data: {\"choices\":[{\"token_ids\":[5]}],\"kv_transfer_params\":{\"a\":[1,2,3]}}\n\n",
	} {
		allocs := func(events int) float64 {
			return testing.AllocsPerRun(5, func() {
				left := events
				r := New(io.Discard, nil, Config{Strip: params, Substance: []string{"choices"}, Observe: nullIDs})
				must(t, r.Run(readFunc(func(p []byte) (int, error) {
					if left--; left < 0 {
						return 0, io.EOF
					}
					return copy(p, event), nil
				})))
			})
		}
		few, many := allocs(10), allocs(2010)
		// A garbage collection may empty the pool of encoding/json's scanners.
		if perEvent := (many - few) / 2000; perEvent > 0.005 || few > 12 {
			t.Errorf("%s: allocations per event: got %.3f, want 0 (%.0f for 10 events, %.0f for 2010)", name, perEvent, few, many)
		}
	}
}
