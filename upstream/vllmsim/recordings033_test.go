package vllmsim

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// excerpts033 are the answers of vLLM 0.33 in testdata/exchanges/vllm-0.33 by their titles, without what they say of the status. Events
// between the first and the last are left out of them, and so are the ends of long lines.
func excerpts033(t *testing.T, file string) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/exchanges/vllm-0.33/" + file)
	must(t, err)
	list, title := map[string][]string{}, ""
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSuffix(line, "\n")
		if params, ok := strings.CutPrefix(line, "P params "); ok {
			list["prefill's params"] = []string{params}
			continue
		}
		if head, ok := strings.CutPrefix(line, "== "); ok {
			at := regexp.MustCompile(` \d{3} `).FindStringIndex(head)
			title = head[:at[0]]
			if body := head[at[1]:]; strings.HasPrefix(body, "{") {
				list[title] = []string{body}
			}
			continue
		}
		if line = strings.TrimPrefix(line, "   "); !strings.HasPrefix(line, "event: ") && line != "..." {
			list[title] = append(list[title], strings.TrimPrefix(line, "data: "))
		}
	}
	return list
}

// event033 is the recorded event that has text, the last of several.
func event033(t *testing.T, events []string, text string) string {
	t.Helper()
	for _, e := range slices.Backward(events) {
		if strings.Contains(e, text) {
			return e
		}
	}
	t.Fatalf("no event with %s in %q", text, events)
	return ""
}

// compareCut compares a document with a recorded one whose end may be cut off. Members that differ by nature count by type.
func compareCut(t *testing.T, name, want, got string) {
	t.Helper()
	if json.Valid([]byte(want)) {
		compareJSON(t, name, []byte(want), []byte(got))
		return
	}
	byNature := regexp.MustCompile(`"(id|model|created_at|created)":("[^"]*"|\d+)|"output":\[.*\],"parallel|"(prompt_token_ids|remote_block_ids)":\[[^"]*\]|"(input_tokens|cached_tokens)":\d+`)
	level := func(text string) string { return byNature.ReplaceAllString(text, "") }
	// The last member of what is left may be cut in its name or value.
	whole := want[:strings.LastIndex(want, `,"`)]
	if have := level(got); !strings.HasPrefix(have, level(whole)) {
		t.Errorf("%s: answered\n%s\nrecorded\n%s", name, have, level(whole))
	}
}

func startPair033(t *testing.T, change func(*Config)) (p, d *Instance) {
	t.Helper()
	return startTinyPair(t, func(c *Config) {
		c.Version, c.OutputTokenIDs = VLLM033, false
		if change != nil {
			change(c)
		}
	})
}

// stream033 streams a request over prefill's params, 4 tokens long, and returns the data of the events.
func stream033(t *testing.T, p, d *Instance, path string, members object) []string {
	t.Helper()
	body := object{"model": "tiny", "max_tokens": 4, "stream": true}
	if path == wire.PathCompletions {
		body["prompt"] = longText
	} else {
		body["messages"] = []any{user(longText)}
	}
	if _, none := members["kv_transfer_params"]; !none {
		prefill := post(t, p, path, with(body, object{"max_tokens": 1, "stream": false, "kv_transfer_params": prefillTemplate()}))
		body["kv_transfer_params"] = prefill.params()
	}
	return post(t, d, path, with(body, members)).events(t)
}

func TestRecordings033_Streams(t *testing.T) {
	for file, plugIn := range map[string]bool{"excerpts-stock.txt": false, "excerpts-plugin-1.1.txt": true} {
		recorded := excerpts033(t, file)
		p, d := startPair033(t, func(c *Config) { c.OutputTokenIDs = plugIn })
		for _, x := range []struct {
			name, path string
			body       object
		}{
			{"chat stream", wire.PathChat, object{}},
			{"chat stream + ids + usage", wire.PathChat, object{"return_token_ids": true, "stream_options": object{"include_usage": true}}},
			{"chat stream no params", wire.PathChat, object{"kv_transfer_params": nil}},
			{"text stream", wire.PathCompletions, object{}},
		} {
			t.Run(file+"/"+x.name, func(t *testing.T) {
				want, got := recorded[x.name], stream033(t, p, d, x.path, x.body)
				parts := []string{`"finish_reason":null,"token_ids":`, `"finish_reason":"length"`, `[DONE]`}
				if x.path == wire.PathCompletions {
					parts[0] = `"finish_reason":null,"stop_reason":null`
				} else {
					parts = append(parts, `"role":"assistant"`)
				}
				if strings.Contains(x.name, "usage") {
					parts = append(parts, `"choices":[]`)
				}
				for _, part := range parts {
					w, g := event033(t, want, part), event033(t, got, part)
					if part == "[DONE]" {
						continue
					}
					w, g = strings.ReplaceAll(w, `[1732,469,1796,1326]`, `[1]`), outputIDs.ReplaceAllString(g, `"output_token_ids":[1]`)
					compareCut(t, part, outputIDs.ReplaceAllString(w, `"output_token_ids":[1]`), g)
				}
			})
		}
		assertClean(t, p, d)
	}
}

var outputIDs = regexp.MustCompile(`"output_token_ids":\[[^]]+]`)

func TestRecordings033_PrefillParams(t *testing.T) {
	p, _ := startPair033(t, func(c *Config) { c.OutputTokenIDs = true })
	prefill := chat(t, p, object{"model": "tiny", "messages": []any{user(longText)}, "max_tokens": 1, "kv_transfer_params": prefillTemplate()})
	var want object // a map has lost the order, which the streams show
	must(t, json.Unmarshal([]byte(excerpts033(t, "excerpts-stock.txt")["prefill's params"][0]), &want))
	compareJSON(t, "prefill's params", wire.RawJSON(want), wire.RawJSON(prefill.params()))
}

func TestRecordings033_Messages(t *testing.T) {
	recorded := excerpts033(t, "excerpts-stock.txt")
	p, d := startPair033(t, nil)
	events := frames(t, messages033(t, p, d, true))
	for _, name := range []string{"message_start", "message_delta", "message_stop"} {
		compareCut(t, name, event033(t, recorded["messages stream"], `"`+name+`"`), string(events.named(t, name)))
	}
	whole := messages033(t, p, d, false)
	compareCut(t, "whole", recorded["messages whole"][0], string(whole.raw))
	if got := post(t, d, wire.PathMessages, object{"model": "nope", "messages": []any{user("hi")}, "max_tokens": 4}); got.status != 404 || !strings.Contains(string(got.raw), `{"type":"error","error":{"type":"not_found_error",`) {
		t.Errorf("an unknown model is answered %d %s, recorded %s", got.status, got.raw, recorded["messages unknown model"])
	}
	if got := post(t, d, wire.PathMessages, object{"model": "tiny", "messages": []any{user("hi")}, "max_tokens": 40000}); got.status != 400 || string(got.raw) != recorded["messages too long"][0] {
		t.Errorf("too many tokens are answered %d %s, recorded %s", got.status, got.raw, recorded["messages too long"])
	}
}

func messages033(t *testing.T, p, d *Instance, stream bool) answer {
	t.Helper()
	body := object{"model": "tiny", "messages": []any{user(longText)}, "max_tokens": 4}
	prefill := post(t, p, wire.PathMessages, with(body, object{"max_tokens": 1, "kv_transfer_params": prefillTemplate()}))
	return post(t, d, wire.PathMessages, with(body, object{"stream": stream, "kv_transfer_params": prefill.params()}))
}

func TestRecordings033_ResponsesStreamCutByItsLimit(t *testing.T) {
	recorded := excerpts033(t, "excerpts-stock.txt")["responses stream"]
	_, d := startPair033(t, nil)
	events := frames(t, post(t, d, wire.PathResponses, object{"model": "tiny", "input": longText, "max_output_tokens": 4, "stream": true, "temperature": 0}))
	for name, part := range map[string]string{
		"response.created": recorded[0], "response.output_item.done": event033(t, recorded, `"type":"response.output_item.done"`),
		"response.incomplete": event033(t, recorded, `"reason":"max_output_tokens"`),
	} {
		compareCut(t, name, part, string(events.named(t, name)))
	}
}

func TestRecordings033_LoadFailure(t *testing.T) {
	recorded := excerpts033(t, "excerpts-stock.txt")["chat stream min: bad remote engine (load failure)"]
	p, d := startPair033(t, nil)
	bad := object{"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": []any{[]any{1, 2, 3, 4, 5}}, "remote_engine_id": "nobody",
		"remote_request_id": "x", "remote_host": "127.0.0.1", "remote_port": p.engines()[0].SidePort}
	got := stream033(t, p, d, wire.PathChat, object{"kv_transfer_params": bad})
	if len(got) != 3 || got[1] != recorded[1] || got[2] != recorded[2] {
		t.Fatalf("answered %q, recorded %q", got, recorded)
	}
	compareCut(t, "role", recorded[0], got[0])
}

// Older and newer releases than those that are known answer like their neighbours.
func TestRelease_Versions(t *testing.T) {
	for version, since := range map[string]bool{"0.26.1": false, "0.32.0": false, "0.32.1+cpu": false, "0.33.0": true, "0.33": true, "0.40.2": true, "1.0.0": true, "dev": false} {
		if got := (&Config{Version: version}).Since033(); got != since {
			t.Errorf("%s answers like 0.33: %v, want %v", version, got, since)
		}
	}
	for name, want := range map[string]string{"0.32": VLLM032, "0.33": VLLM033, "0.31": "", "": ""} {
		if got, err := Release(name); got != want || (err == nil) != (want != "") {
			t.Errorf("release %q is %q, %v", name, got, err)
		}
	}
}
