package vllmsim

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLMCache_Recordings has the simulator answer what LMCache was asked in testdata/exchanges/lmcache.
func TestLMCache_Recordings(t *testing.T) {
	const folder = "../../testdata/exchanges/lmcache"
	read := func(name string) (r recording) {
		raw, err := os.ReadFile(filepath.Join(folder, name))
		must(t, err)
		// The fingerprint is a hash of the engine's settings.
		raw = []byte(strings.ReplaceAll(string(raw), "vllm-0.32.0-f3ca4dee", (&Config{Version: VLLM032}).Fingerprint()))
		must(t, json.Unmarshal(raw, &r))
		return r
	}
	p, d, proxy := startLMCache(t, func(c *Config) { c.Version, c.Model, c.MaxModelLen = VLLM032, "tiny", 8192 })
	tokenize, prefill, decode := read("01-tokenize.json"), read("02-prefill.json"), read("04-decode-stream.json")
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
	raw, err := os.ReadFile(filepath.Join(folder, "03-notification.json"))
	must(t, err)
	must(t, json.Unmarshal(raw, &notified))
	frame, err := hex.DecodeString(notified.Frames[0])
	must(t, err)
	proxy.await(t, string(frame))

	decode.Request.Body["prompt"] = append(prompt, tok)
	compareExchange(t, "04", decode, post(t, d, decode.Request.Path, decode.Request.Body))
	expect(t, d, counts{"CorruptReads": 0, "ExternalTokens": len(prompt)})
}

func rawFirst(tok int32) string { return fmt.Sprintf(`{"first_tok":%d}`, tok) }
