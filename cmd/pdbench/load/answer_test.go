package load

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"carryover/cmd/pdbench/engines"
)

// sampleStreams are what the engines stream, with ids and without, in three chunks.
func sampleStreams(f *testing.F) (list []string) {
	f.Helper()
	for _, ids := range []bool{false, true} {
		for _, vllm := range []engines.Version{engines.VLLM032, engines.VLLM033} {
			e := serveLoaded(f, engines.Pace{Chunks: 3, ChunkIDs: ids, VLLM: vllm})
			body := `{"model":"bench","messages":[{"role":"user","content":"#7 what is kept, and for how long?"}],"stream":true,"return_token_ids":true,` +
				`"kv_transfer_params":{"do_remote_prefill":true}}`
			req, err := http.NewRequestWithContext(f.Context(), http.MethodPost, e.Decode+engines.ChatPath, strings.NewReader(body))
			must(f, err)
			req.Close = true
			resp, err := http.DefaultClient.Do(req)
			must(f, err)
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				f.Fatal(resp.Status, err)
			}
			resp.Body.Close()
			list = append(list, string(text))
		}
	}
	return list
}

// FuzzAnswer takes any bytes for a stream: what is found wrong with it does not depend on how they arrive.
func FuzzAnswer(f *testing.F) {
	for _, stream := range sampleStreams(f) {
		f.Add([]byte(stream), uint8(7))
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		take := func(size int) (a answer, chunks int, err error) {
			a.begin(expected{says: engines.AnswerTo(7, 1), chunks: 3, hides: true})
			for rest := text; len(rest) > 0 && err == nil; {
				part := rest[:min(size, len(rest))]
				var got int
				got, err = a.take(bytes.Clone(part))
				chunks += got
				rest = rest[len(part):]
			}
			return a, chunks, err
		}
		n := int(size) + 1
		whole, chunks, err := take(len(text) + 1)
		split, splitChunks, splitErr := take(n)
		if (err == nil) != (splitErr == nil) || err == nil && (chunks != splitChunks || whole.done != split.done || !bytes.Equal(whole.text, split.text)) {
			t.Fatalf("at once %d, %v, %v; by %d: %d, %v, %v", chunks, whole.done, err, n, splitChunks, split.done, splitErr)
		}
	})
}
