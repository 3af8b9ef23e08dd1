package vllmsim

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// TestLMCache_Recordings has the simulator answer what LMCache was asked in testdata/exchanges/lmcache.
func TestLMCache_Recordings(t *testing.T) {
	p, d, proxy := startLMCache(t, func(c *Config) { c.Version, c.Model, c.MaxModelLen = VLLM032, "tiny", 8192 })
	tokenize, prefill, decode := readRecording(t, "lmcache", "01"), readRecording(t, "lmcache", "02"), readRecording(t, "lmcache", "04")
	asked := post(t, p, tokenize.Request.Path, tokenize.Request.Body)
	compareExchange(t, "01", tokenize, asked)
	prompt := ids(asked.body["tokens"])

	recorded := prefill.Request.Body["kv_transfer_params"].(object)["disagg_spec"].(object)
	prefill.Request.Body["prompt"] = prompt
	prefill.Request.Body["kv_transfer_params"].(object)["disagg_spec"] = spec(d, recorded["req_id"].(string))
	got := post(t, p, prefill.Request.Path, prefill.Request.Body)
	tok := first(t, got)
	got.raw = []byte(strings.Replace(string(got.raw), rawFirst(tok), rawFirst(2003), 1))
	compareExchange(t, "02", prefill, got)

	var notified struct {
		Frames []string `json:"frames_hex"`
	}
	readRecorded(t, "lmcache", "03", &notified)
	frame, err := hex.DecodeString(notified.Frames[0])
	must(t, err)
	proxy.await(t, string(frame))

	decode.Request.Body["prompt"] = append(prompt, tok)
	compareExchange(t, "04", decode, post(t, d, decode.Request.Path, decode.Request.Body))
	expect(t, d, counts{"CorruptReads": 0, "ExternalTokens": len(prompt)})
}

func rawFirst(tok int32) string { return fmt.Sprintf(`{"first_tok":%d}`, tok) }
