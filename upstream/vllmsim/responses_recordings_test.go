package vllmsim

import (
	"bytes"
	"encoding/json"
	"regexp"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// saidOutput and saidMessages are what the model says: random text, all of it a thought, on the real pair.
var (
	saidOutput   = regexp.MustCompile(`"output":\[.*\],"parallel_tool_calls"`)
	saidMessages = regexp.MustCompile(`"output_messages":\[.*\]`)
)

// compareResponse compares all but what the model says.
func compareResponse(t *testing.T, name string, want, got []byte) {
	t.Helper()
	unsaid := func(raw []byte) []byte {
		var b bytes.Buffer
		must(t, json.Compact(&b, raw))
		return saidMessages.ReplaceAll(saidOutput.ReplaceAll(b.Bytes(), []byte(`"output":0,"parallel_tool_calls"`)), []byte(`"output_messages":0`))
	}
	compareJSON(t, name, unsaid(want), unsaid(got))
}

// TestResponsesRecordings_Handover sends the recorded requests of 08 and 09, with the ticket of the simulated prefill.
func TestResponsesRecordings_Handover(t *testing.T) {
	p, d := startTinyPair(t, func(c *Config) { c.OutputTokenIDs = false })
	first, second := readRecording(t, "vllm-0.32-agents", "08"), readRecording(t, "vllm-0.32-agents", "09")
	prefill := post(t, p, wire.PathResponses, first.Request.Body)
	prefill.answers(t, 200)
	compareResponse(t, "08", first.Response.JSON, prefill.raw)
	prompt := prefill.body["input_messages"].([]any)[0].(object)["tokens"]
	body := with(second.Request.Body, object{"cache_salt": first.Request.Body["cache_salt"], "kv_transfer_params": with(prefill.params(), object{"prompt_token_ids": prompt})})
	post(t, d, wire.PathResponses, body).answers(t, 200)
	if s := d.Stats(); s.ComputedTokens > 1 || s.Loads != 1 {
		t.Errorf("decode computed %d prompt tokens after %d loads", s.ComputedTokens, s.Loads)
	}
	assertClean(t, p, d)
}
