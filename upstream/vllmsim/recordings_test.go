package vllmsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/wire"
)

type recording struct {
	Server  string `json:"server"`
	Request struct {
		Method  string            `json:"method"`
		Path    string            `json:"path"`
		Headers map[string]string `json:"headers"`
		Body    object            `json:"body"`
	} `json:"request"`
	Response struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		JSON    json.RawMessage   `json:"json"`
		Text    string            `json:"text"`
	} `json:"response"`
}

func readRecording(t *testing.T, folder, name string) (r recording) {
	t.Helper()
	readRecorded(t, folder, name, &r)
	return r
}

// readRecorded reads recording number from a folder of testdata/exchanges. It replaces the fingerprint, a hash of the engine's settings, by
// the simulator's.
func readRecorded(t *testing.T, folder, number string, v any) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../testdata/exchanges", folder, number+"-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recording %s: %v %v", number, files, err)
	}
	raw, err := os.ReadFile(files[0])
	must(t, err)
	must(t, json.Unmarshal(regexp.MustCompile(`vllm-0\.32\.0-[0-9a-f]{8}`).ReplaceAll(raw, []byte((&Config{Version: VLLM032}).Fingerprint())), v))
}

// replayer sends recorded requests to a simulated pair. What a request took from an earlier answer of the real pair, it
// takes from the simulator's answer to the same request.
type replayer struct {
	p, d    *Instance
	answers map[string]answer
}

func (r *replayer) ticket(t *testing.T, from string, promptIDs any) object {
	t.Helper()
	params := r.answers[from].params()
	if params == nil {
		t.Fatalf("exchange %s gave no params", from)
	}
	return with(params, object{"prompt_token_ids": promptIDs})
}

// adapt replaces in the body of a recorded request what the simulated engines answered differently.
func (r *replayer) adapt(t *testing.T, name string, body object) object {
	t.Helper()
	recorded, _ := body["kv_transfer_params"].(object)
	side := func(i *Instance) object {
		e := i.engines()[0]
		return object{"remote_engine_id": e.ID, "remote_port": e.SidePort}
	}
	switch name {
	case "02":
		return with(body, object{"kv_transfer_params": r.ticket(t, "01", r.answers["01"].body["prompt_token_ids"])})
	case "04":
		return with(body, object{"kv_transfer_params": r.shortened(t)})
	case "05":
		return with(body, object{"kv_transfer_params": r.ticket(t, "04", r.answers["03"].body["tokens"])})
	case "06":
		return with(body, object{"kv_transfer_params": with(recorded, object{"remote_port": side(r.d)["remote_port"]})})
	case "07":
		return with(body, object{"kv_transfer_params": with(recorded, side(r.d))})
	case "08":
		return with(body, object{"kv_transfer_params": with(recorded, object{"remote_port": side(r.p)["remote_port"]})})
	case "09", "20":
		p := post(t, r.p, wire.PathChat, object{"model": "tiny", "messages": body["messages"], "max_tokens": 1, "kv_transfer_params": prefillTemplate()})
		return with(body, object{"kv_transfer_params": p.params()})
	case "12":
		return with(body, object{"prompt": r.answers["11"].choice()["prompt_token_ids"], "kv_transfer_params": r.answers["11"].params()})
	default:
		return body
	}
}

// shortened is decode's ticket of turn 1, cut to the whole blocks that turn 2 begins with.
func (r *replayer) shortened(t *testing.T) object {
	t.Helper()
	first := r.answers["02"]
	held := slices.Concat(ids(first.body["prompt_token_ids"]), ids(first.choice()["token_ids"]))
	next := r.answers["03"].body["tokens"]
	return shortTicket(r.ticket(t, "02", next), held, ids(next), 32)
}

// shortTicket cuts a ticket to the whole blocks that next begins with.
func shortTicket(ticket object, held, next []int32, size int) object {
	n := 0
	for n < len(held) && n < len(next) && held[n] == next[n] {
		n++
	}
	count := n / size
	group := ticket["remote_block_ids"].([]any)[0].([]any)
	return with(ticket, object{"remote_num_tokens": count * size, "remote_block_ids": []any{group[:count]}})
}

func TestRecordings_SimulatorAnswersLikeVLLM(t *testing.T) {
	p, d := startPair(t, func(c *Config) {
		c.Model, c.BlockSize, c.MaxModelLen = "tiny", 32, 8192
		c.PromptTokensDetails, c.RequestIDHeaders = true, true
		c.Version, c.Params, c.TimeScale = VLLM032, ParamsNever, 50
	})
	r := &replayer{p: p, d: d, answers: map[string]answer{}}
	for n := 1; n <= 20; n++ {
		name := fmt.Sprintf("%02d", n)
		if name == "19" {
			continue // metrics have a test of their own
		}
		rec := readRecording(t, "vllm-0.32", name)
		if name == "20" {
			separate := config.ParamsSeparate
			must(t, d.Switch(Switches{Params: &separate}))
		}
		got := r.send(t, name, rec)
		r.answers[name] = got
		compareExchange(t, name, rec, got)
	}
	expect(t, p, counts{"CorruptReads": 0, "Poisoned": 0, "DoubleReads": 0, "Loads": 1})
	expect(t, d, counts{"CorruptReads": 0, "Poisoned": 0, "DoubleReads": 0})
}

func (r *replayer) send(t *testing.T, name string, rec recording) answer {
	t.Helper()
	i := r.p
	if rec.Server == "decode" {
		i = r.d
	}
	var body any
	if rec.Request.Body != nil {
		body = r.adapt(t, name, rec.Request.Body)
	}
	req := newRequest(t, i, rec.Request.Path, body)
	req.Method = rec.Request.Method
	for k, v := range rec.Request.Headers {
		req.Header.Set(k, v)
	}
	return do(t, req)
}

func compareExchange(t *testing.T, name string, rec recording, got answer) {
	t.Helper()
	if got.status != rec.Response.Status {
		t.Errorf("%s: status %d, recorded %d: %s", name, got.status, rec.Response.Status, got.raw)
		return
	}
	for header, value := range rec.Response.Headers {
		if header == "transfer-encoding" {
			continue // net/http takes it out of the headers
		}
		have := got.header.Get(header)
		generated := header == "content-length" || rec.Request.Headers["X-Request-Id"] == "" && header == "x-request-id"
		if have == "" || !generated && have != value {
			t.Errorf("%s: header %s is %q, recorded %q", name, header, have, value)
		}
	}
	if rec.Response.JSON != nil {
		compareJSON(t, name, rec.Response.JSON, got.raw)
		return
	}
	want := answer{raw: []byte(rec.Response.Text)}.events(t)
	have := got.events(t)
	if len(have) != len(want) {
		t.Errorf("%s: %d events, recorded %d:\n%s", name, len(have), len(want), got.raw)
		return
	}
	for n := range want {
		switch {
		case want[n] == "[DONE]" || strings.HasPrefix(want[n], `{"error"`):
			if have[n] != want[n] {
				t.Errorf("%s: event %d is %s, recorded %s", name, n, have[n], want[n])
			}
		default:
			compareJSON(t, fmt.Sprintf("%s event %d", name, n), []byte(want[n]), []byte(have[n]))
		}
	}
}

// byNature are members whose values differ between any two runs or any two tokenizers: only their JSON types count.
var byNature = regexp.MustCompile(`(^|\.)(id|created|content|text|token_ids|output_token_ids|prompt_token_ids|tokens|count|remote_engine_id|` +
	`remote_request_id|remote_block_ids|remote_port|remote_num_tokens|remote_blocks_expiry_time|` +
	`remote_prefill_cached_tokens|prompt_tokens|total_tokens|completion_tokens|cached_tokens|created_cache_tokens|request_id|input_tokens|original_input_tokens|output_tokens|` +
	`thinking|signature|partial_json|arguments|call_id|item_id|delta|max_output_tokens|input_messages\.message|cache_read_input_tokens|cache_creation_input_tokens|created_at|cache_write_tokens|reasoning_tokens|sequence_number)$`)

func compareJSON(t *testing.T, name string, want, got []byte) {
	t.Helper()
	w, g := flatten(t, want), flatten(t, got)
	for n := range max(len(w), len(g)) {
		if n >= len(w) || n >= len(g) {
			t.Errorf("%s: %d members, recorded %d:\n%s", name, len(g), len(w), got)
			return
		}
		if w[n].path != g[n].path {
			t.Errorf("%s: member %d is %s, recorded %s", name, n, g[n].path, w[n].path)
			return
		}
		if w[n].kind != g[n].kind || !byNature.MatchString(w[n].path) && w[n].value != g[n].value {
			t.Errorf("%s: %s is %s %s, recorded %s %s", name, w[n].path, g[n].kind, g[n].value, w[n].kind, w[n].value)
		}
	}
}

type leaf struct{ path, kind, value string }

// flatten lists the members of a JSON document in their order. Lists of numbers are one leaf.
func flatten(t *testing.T, raw []byte) []leaf {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var leaves []leaf
	var walk func(path string)
	walk = func(path string) {
		token, err := dec.Token()
		if err != nil {
			t.Fatalf("read %s at %s: %v", raw, path, err)
		}
		switch v := token.(type) {
		case json.Delim:
			leaves = append(leaves, leaf{path, fmt.Sprint(v), ""})
			for n := 0; dec.More(); n++ {
				at := path
				if v == '{' {
					key, _ := dec.Token()
					at = path + "." + key.(string)
				}
				before := len(leaves)
				walk(at)
				if v == '[' && n > 0 && leaves[before].kind == "number" {
					leaves = leaves[:before]
				}
			}
			_, _ = dec.Token() // the closing bracket
		case nil:
			leaves = append(leaves, leaf{path, "null", ""})
		case json.Number:
			leaves = append(leaves, leaf{path, "number", v.String()})
		default:
			leaves = append(leaves, leaf{path, fmt.Sprintf("%T", v), fmt.Sprint(v)})
		}
	}
	walk("")
	return leaves
}

func TestRecordings_Metrics(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.Model, c.BlockSize, c.MaxModelLen = "tiny", 32, 8192 })
	recorded, err := os.ReadFile("../../testdata/exchanges/vllm-0.32/19-metrics-prefill.txt")
	must(t, err)
	have := map[string]bool{}
	for line := range strings.Lines(string(get(t, i, "/metrics").raw)) {
		have[metricName(line)] = true
	}
	for name := range have {
		if strings.HasPrefix(name, "vllm:") && !strings.HasPrefix(name, "vllm:cache_config_info") && !strings.HasPrefix(name, "vllm:engine_sleep_state") && !strings.Contains(string(recorded), name) {
			t.Errorf("not as recorded: %s", name)
		}
	}
	if !have["process_start_time_seconds"] {
		t.Error("process_start_time_seconds is missing")
	}
}

// metricName is a line without the value.
func metricName(line string) string {
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "#") {
		return line
	}
	return line[:strings.LastIndexByte(line, ' ')]
}
