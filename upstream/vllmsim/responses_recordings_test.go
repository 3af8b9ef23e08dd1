package vllmsim

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"carryover/upstream/vllmsim/recordedtest"
	"carryover/upstream/vllmsim/wire"
)

func compacted(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, json.Compact(&b, raw))
	return b.Bytes()
}

// saidOutput and saidMessages are what the model says: random text, all of it a thought, on the real pair.
var (
	saidOutput   = regexp.MustCompile(`"output":\[.*\],"parallel_tool_calls"`)
	saidMessages = regexp.MustCompile(`"output_messages":\[.*\]`)
)

// compareResponse compares all but what the model says.
func compareResponse(t *testing.T, name string, want, got []byte) {
	t.Helper()
	unsaid := func(raw []byte) []byte {
		raw = saidOutput.ReplaceAll(compacted(t, raw), []byte(`"output":0,"parallel_tool_calls"`))
		return saidMessages.ReplaceAll(raw, []byte(`"output_messages":0`))
	}
	compareJSON(t, name, unsaid(want), unsaid(got))
}

// TestResponsesRecordings_Handover sends the recorded requests of 08 and 09, with the ticket of the simulated prefill.
func TestResponsesRecordings_Handover(t *testing.T) {
	p, d := startTinyPair(t, func(c *Config) { c.OutputTokenIDs = false })
	var first, second recording
	recordedtest.Read(t, "../..", "vllm-0.32-agents", "08", &first)
	recordedtest.Read(t, "../..", "vllm-0.32-agents", "09", &second)
	prefill := post(t, p, wire.PathResponses, first.Request.Body)
	prefill.answers(t, 200)
	compareResponse(t, "08", first.Response.JSON, prefill.raw)
	prompt := prefill.body["input_messages"].([]any)[0].(object)["tokens"]
	body := with(second.Request.Body, object{"cache_salt": first.Request.Body["cache_salt"], "kv_transfer_params": with(prefill.params(), object{"prompt_token_ids": prompt})})
	got := recordedtest.Frames(t, string(post(t, d, wire.PathResponses, body).raw))
	want := recordedtest.Frames(t, second.Response.Text)
	for _, event := range []string{"response.created", "response.in_progress", "response.completed"} {
		at := func(events []recordedtest.Frame) []byte {
			n := slices.IndexFunc(events, func(e recordedtest.Frame) bool { return e.Name == event })
			if n < 0 {
				t.Fatalf("no %s", event)
			}
			return []byte(events[n].Data)
		}
		compareResponse(t, "09 "+event, at(want), at(got))
	}
	if s := d.Stats(); s.ComputedTokens > 1 || s.Loads != 1 {
		t.Errorf("decode computed %d prompt tokens after %d loads", s.ComputedTokens, s.Loads)
	}
	assertClean(t, p, d)
}
