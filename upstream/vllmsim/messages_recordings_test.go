package vllmsim

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// frame is an event of a stream with named events.
type frame struct{ Name, Data string }

// stream are the events of an answer.
type stream []frame

// frames splits an answer, each of whose events must have a name and one line of data, and nothing else.
func frames(t *testing.T, got answer) (list stream) {
	t.Helper()
	text, ok := strings.CutSuffix(string(got.raw), "\n\n")
	if !ok {
		t.Fatalf("stream does not end with a blank line: %q", text)
	}
	for _, event := range strings.Split(text, "\n\n") {
		name, data, ok := strings.Cut(event, "\ndata: ")
		name, named := strings.CutPrefix(name, "event: ")
		if !ok || !named || strings.Contains(data, "\n") {
			t.Fatalf("no event with a name and a line of data: %q", event)
		}
		list = append(list, frame{name, data})
	}
	return list
}

// named is the data of the first event of a name.
func (s stream) named(t *testing.T, name string) []byte {
	t.Helper()
	n := slices.IndexFunc(s, func(e frame) bool { return e.Name == name })
	if n < 0 {
		t.Fatalf("no %s", name)
	}
	return []byte(s[n].Data)
}

func startTinyPair(t *testing.T, change func(*Config)) (p, d *Instance) {
	t.Helper()
	return startPair(t, func(c *Config) {
		c.Model, c.BlockSize, c.MaxModelLen = "tiny", 32, 8192
		c.PromptTokensDetails, c.RequestIDHeaders, c.Render = true, true, true
		c.Version, c.OutputTokenIDs, c.TimeScale = VLLM032, true, 50
		if change != nil {
			change(c)
		}
	})
}

func TestAgentsRecordings_SmallAnswers(t *testing.T) {
	p, d := startTinyPair(t, nil)
	rec := readRecording(t, "vllm-0.32-agents", "01")
	got := post(t, p, rec.Request.Path, rec.Request.Body)
	compareExchange(t, "01", rec, got)

	var list struct {
		Exchanges []struct {
			recording
			Name    string `json:"name"`
			Request struct {
				Path string `json:"path"`
				Raw  string `json:"raw"`
				Body object `json:"body"`
			} `json:"request"`
		} `json:"exchanges"`
	}
	readRecorded(t, "vllm-0.32-agents", "13", &list)
	seen := 0
	for _, x := range list.Exchanges {
		if !strings.HasPrefix(x.Request.Path, wire.PathMessages) && x.Request.Path != wire.PathResponses {
			continue
		}
		seen++
		i := p
		if x.Server == "decode" {
			i = d
			x.Request.Body["kv_transfer_params"] = with(x.Request.Body["kv_transfer_params"].(object), object{"remote_port": p.engines()[0].SidePort})
		}
		off := x.Name != "x-render-disabled"
		must(t, i.Switch(Switches{Render: &off}))
		var body any = x.Request.Body
		if x.Request.Raw != "" {
			body = []byte(x.Request.Raw)
		}
		got := post(t, i, x.Request.Path, body)
		compareExchange(t, x.Name, x.recording, got)
	}
	if seen != 9 {
		t.Errorf("%d small answers of /v1/messages and /v1/responses, want 9", seen)
	}
}

// TestMessagesRecordings_Handover sends the recorded requests of 02 and 04 with tickets of the simulated prefill.
func TestMessagesRecordings_Handover(t *testing.T) {
	for _, name := range []string{"02", "04"} {
		p, d := startTinyPair(t, nil)
		rec := readRecording(t, "vllm-0.32-agents", name)
		forced := rec.Request.Body["kv_transfer_params"].(object)["prompt_token_ids"]
		prefill := post(t, p, wire.PathCompletions, object{"model": "tiny", "prompt": forced, "max_tokens": 1, "return_token_ids": true,
			"cache_salt": rec.Request.Body["cache_salt"], "kv_transfer_params": prefillTemplate()})
		body := with(rec.Request.Body, object{"kv_transfer_params": with(prefill.params(), object{"prompt_token_ids": forced}), "max_tokens": 20})
		post(t, d, wire.PathMessages, body).answers(t, 200)
		if s := d.Stats(); s.ComputedTokens > 1 || s.Loads != 1 {
			t.Errorf("%s: decode computed %d prompt tokens after %d loads", name, s.ComputedTokens, s.Loads)
		}
		assertClean(t, p, d)
	}
}

// changes leaves out events that are of the same kind as the one before.
func (s stream) changes() (list stream) {
	kind := regexp.MustCompile(`"type":"\w+"`)
	last := ""
	for _, e := range s {
		if now := fmt.Sprint(e.Name, kind.FindAllString(e.Data, -1)); now != last {
			list, last = append(list, e), now
		}
	}
	return list
}

// Thoughts, text and calls that are cut by the limit come in the recorded events.
func TestAgentsRecordings_Blocks(t *testing.T) {
	const thoughts = "THINK "
	const call = `CALL get_weather {"city": "the town at the end of the long river, behind the hills"} `
	for name, order := range map[string]string{"02": thoughts, "04": "", "06": call, "09": thoughts, "10": call} {
		_, d := startTinyPair(t, func(c *Config) { c.MessageParams, c.OutputTokenIDs = name == "04", name == "04" })
		rec := readRecording(t, "vllm-0.32-agents", name)
		limit := 24
		if order == thoughts {
			limit = 12
		}
		said := object{"messages": []any{user(order + longText)}, "max_tokens": limit}
		if rec.Request.Path == wire.PathResponses {
			said = object{"input": order + longText, "max_output_tokens": limit}
		}
		got := frames(t, post(t, d, rec.Request.Path, with(with(rec.Request.Body, object{"kv_transfer_params": object{"x": 1}}), said))).changes()
		want := frames(t, answer{raw: []byte(rec.Response.Text)}).changes()
		if len(got) != len(want) {
			t.Errorf("%s: %d kinds of events, recorded %d: %v", name, len(got), len(want), got)
			continue
		}
		for n, e := range want {
			if strings.Contains(e.Data, "additionalProperties") {
				continue // the request's, whose order a map has lost
			}
			compareResponse(t, name+" "+e.Name, []byte(e.Data), []byte(got[n].Data))
		}
	}
}

// The Responses API has no event for an error: its connection is cut.
func TestAgentsRecordings_LoadFailure(t *testing.T) {
	byRun := regexp.MustCompile(`"id":"[^"]*"|"input_tokens":\d+|"created_at":\d+`)
	for name, path := range map[string]string{"07": wire.PathMessages, "11": wire.PathResponses} {
		p, d := startTinyPair(t, nil)
		rec := readRecording(t, "vllm-0.32-agents", name)
		body := with(rec.Request.Body, object{"kv_transfer_params": with(rec.Request.Body["kv_transfer_params"].(object), object{"remote_port": p.engines()[0].SidePort})})
		resp, err := client().Do(newRequest(t, d, path, body))
		must(t, err)
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if have, want := byRun.ReplaceAllString(string(got), ""), byRun.ReplaceAllString(rec.Response.Text, ""); resp.StatusCode != 200 || (err == nil) != (path == wire.PathMessages) || have != want {
			t.Errorf("%s: answered %d, error %v\n%s\nrecorded\n%s", name, resp.StatusCode, err, have, want)
		}
	}
}
