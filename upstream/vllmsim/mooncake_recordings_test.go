package vllmsim

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"carryover/upstream/vllmsim/wire"
)

// The recorded requests, with this pair's engine id and bootstrap server in them.
func TestMooncake_AnswersAsRecorded(t *testing.T) {
	p, d := startPair(t, func(c *Config) {
		c.Connector, c.Model, c.BlockSize, c.MaxModelLen = ConnectorMooncake, "tiny", 32, 8192
		c.PromptTokensDetails = true
		c.Version, c.Mooncake.AbortTimeout, c.TimeScale = VLLM032, 12*time.Second, 50
	})
	adapted := func(rec recording) object {
		params, _ := rec.Request.Body["kv_transfer_params"].(object)
		if params["remote_engine_id"] == nil {
			return rec.Request.Body
		}
		return with(rec.Request.Body, object{"kv_transfer_params": with(params, object{
			"remote_engine_id": p.engines()[0].ID, "remote_bootstrap_addr": p.Addresses().Bootstrap,
		})})
	}

	query := readRecording(t, "mooncake", "01")
	req, err := http.NewRequestWithContext(t.Context(), query.Request.Method, p.Addresses().Bootstrap+query.Request.Path, http.NoBody)
	must(t, err)
	told := do(t, req)
	ofOne := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|:[0-9]{4,5}\b`)
	compareJSON(t, "01", ofOne.ReplaceAll(query.Response.JSON, nil), ofOne.ReplaceAll(told.raw, nil))

	prefill, decode := readRecording(t, "mooncake", "02"), readRecording(t, "mooncake", "03")
	answered := later(t, d, adapted(decode))
	compareExchange(t, "02", prefill, chat(t, p, adapted(prefill)))
	compareExchange(t, "03", decode, answered())

	stream := readRecording(t, "mooncake", "04")
	transfer := stream.Request.Body["kv_transfer_params"].(object)["transfer_id"]
	answered = later(t, d, adapted(stream))
	chat(t, p, with(prefill.Request.Body, object{"cache_salt": stream.Request.Body["cache_salt"], "kv_transfer_params": object{
		"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": transfer,
	}}))
	compareExchange(t, "04", stream, answered())

	stopped := readRecording(t, "mooncake", "05")
	first := ids(chat(t, d, with(prefill.Request.Body, object{"kv_transfer_params": nil})).choice()["token_ids"])[0]
	body := with(adapted(stopped), object{"stop_token_ids": []any{first}})
	stopped.Response.JSON = []byte(strings.Replace(string(stopped.Response.JSON), "1991", string(wire.RawJSON(first)), 1)) // another tokenizer's
	compareExchange(t, "05", stopped, chat(t, p, body))
	expect(t, p, counts{"Pins": 0}) // what stops on its first token throws its KV away
	waits := readRecording(t, "mooncake", "06")
	compareExchange(t, "06", waits, chat(t, d, adapted(waits)))
	assertClean(t, p, d)
}
