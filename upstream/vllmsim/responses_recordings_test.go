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

func TestResponsesRecordings_LoadFailure(t *testing.T) {
	p, d := startTinyPair(t, nil)
	rec := readRecording(t, "vllm-0.32-agents", "11")
	body := with(rec.Request.Body, object{"kv_transfer_params": with(rec.Request.Body["kv_transfer_params"].(object), object{"remote_port": p.engines()[0].SidePort})})
	status, _, got, err := attemptAt(t, d, wire.PathResponses, body)
	byRun := regexp.MustCompile(`"id":"[^"]*"|"created_at":\d+`)
	if have, want := byRun.ReplaceAllString(got, ""), byRun.ReplaceAllString(rec.Response.Text, ""); status != 200 || err == nil || have != want {
		t.Errorf("answered %d, error %v\n%s\nrecorded, with the connection cut\n%s", status, err, have, want)
	}
}

func TestResponsesRecordings_SmallAnswers(t *testing.T) {
	p, d := startTinyPair(t, nil)
	var list struct {
		Exchanges []struct {
			recording
			Name string `json:"name"`
		} `json:"exchanges"`
	}
	recordedtest.Read(t, "../..", "vllm-0.32-agents", "13", &list)
	seen := 0
	for _, x := range list.Exchanges {
		if x.Request.Path != wire.PathResponses {
			continue
		}
		seen++
		i := p
		if x.Server == "decode" {
			i = d
			x.Request.Body["kv_transfer_params"] = with(x.Request.Body["kv_transfer_params"].(object), object{"remote_port": p.engines()[0].SidePort})
		}
		compareExchange(t, x.Name, x.recording, post(t, i, wire.PathResponses, x.Request.Body))
	}
	if seen != 2 {
		t.Errorf("%d small answers of %s, want 2", seen, wire.PathResponses)
	}
}
