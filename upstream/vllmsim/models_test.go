package vllmsim

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

func served(c *Config) {
	c.Models, c.Adapters = []string{"first", "second"}, []string{"french", "terse"}
}

func TestModels_AreListedWithTheirAdapters(t *testing.T) {
	i := startInstance(t, served)
	type card struct {
		id, root, parent string
		limited          bool
	}
	var got []card
	for _, m := range get(t, i, "/v1/models").body["data"].([]any) {
		m := m.(object)
		parent, _ := m["parent"].(string)
		got = append(got, card{m["id"].(string), m["root"].(string), parent, m["max_model_len"] != nil})
	}
	want := []card{{"first", "model", "", true}, {"second", "model", "", true}, {"french", "adapters/french", "first", false}, {"terse", "adapters/terse", "first", false}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestModels_AnswersSayTheFirstNameOrTheAdapters(t *testing.T) {
	i := startInstance(t, served)
	texts := map[string]string{}
	for asked, want := range map[string]string{"first": "first", "second": "first", "": "first", "french": "french", "terse": "terse"} {
		whole := post(t, i, wire.PathChat, object{"model": asked, "messages": []any{user("hi")}})
		if whole.status != http.StatusOK || whole.body["model"] != want {
			t.Errorf("model %q: %d, answer of %v; want 200 and %q", asked, whole.status, whole.body["model"], want)
			continue
		}
		texts[asked] = whole.text()
		stream := post(t, i, wire.PathCompletions, object{"model": asked, "prompt": "hi", "stream": true, "max_tokens": 2})
		for _, event := range stream.events(t)[:2] {
			if !strings.Contains(event, `"model":"`+want+`"`) {
				t.Errorf("model %q: event %s, want one of %q", asked, event, want)
			}
		}
	}
	if texts["first"] != texts["second"] || texts["first"] == texts["french"] || texts["french"] == texts["terse"] {
		t.Errorf("aliases are the same model and adapters others; they said %q", texts)
	}
	for _, path := range []string{wire.PathChat, wire.PathCompletions, "/tokenize"} {
		got := post(t, i, path, object{"model": "third", "messages": []any{user("hi")}, "prompt": "hi"})
		if want := `{"error":{"message":"The model ` + "`third`" + ` does not exist. Valid aliases: first, second.","type":"NotFoundError","param":"model","code":404}}`; got.status != http.StatusNotFound || string(got.raw) != want {
			t.Errorf("%s: %d %s", path, got.status, got.raw)
		}
	}
}

func TestAdapters_AreLoadedAtRunTime(t *testing.T) {
	i := startInstance(t, served)
	asked := object{"model": "late", "messages": []any{user("hi")}}
	if got := post(t, i, wire.PathChat, asked); got.status != http.StatusNotFound {
		t.Errorf("before it is loaded: %d, want 404", got.status)
	}
	if err := i.Switch(Switches{Adapters: &[]string{"late"}}); err != nil {
		t.Fatal(err)
	}
	if got := post(t, i, wire.PathChat, asked); got.status != http.StatusOK || got.body["model"] != "late" {
		t.Errorf("loaded: %d, answer of %v; want 200 and late", got.status, got.body["model"])
	}
	if err := i.Switch(Switches{Adapters: &[]string{"first"}}); err == nil {
		t.Error("an adapter may have the name of the model")
	}
}

func TestAdapters_HaveKVOfTheirOwn(t *testing.T) {
	p, d := startPair(t, served)
	messages := []any{user(longText)}
	for range 2 {
		for _, model := range []string{"first", "french", "terse"} {
			turn(t, p, d, messages, nil, object{"model": model})
		}
	}
	// The second round finds the first one's blocks: those of its own model, or they would be poison.
	if s := p.Stats(); s.LocalHitTokens == 0 {
		t.Error("nothing was found in the prefix cache")
	}
	assertClean(t, p, d)

	_, reply := turn(t, p, d, messages, nil, object{"model": "french"})
	next := append(messages, assistant(reply.text()), user("And then?"))
	turn(t, p, d, next, reply.params(), object{"model": "terse", "cache_salt": "fresh"})
	if s := p.Stats(); s.CorruptReads != 1 {
		t.Errorf("an adapter read the KV of another: %d corrupt reads, want 1", s.CorruptReads)
	}
}

func TestDataParallel_EachRankHasItsOwnState(t *testing.T) {
	p := startInstance(t, func(c *Config) { c.DPRanks, c.Blocks = 3, 64 })
	d := startInstance(t, nil)
	ask := func(i *Instance, rank string, body object) answer {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, i.URL()+wire.PathChat, strings.NewReader(string(wire.RawJSON(body))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Data-Parallel-Rank", rank)
		return do(t, req)
	}
	body := object{"model": "sim", "messages": []any{user(longText)}, "max_tokens": 1}
	params := map[int]object{}
	ports := map[any]bool{}
	for _, rank := range []int{2, 0} {
		params[rank] = ask(p, strconv.Itoa(rank), with(body, object{"kv_transfer_params": prefillTemplate()})).params()
		if id := params[rank]["remote_engine_id"].(string); !strings.HasSuffix(id, "_dp"+strconv.Itoa(rank)) {
			t.Errorf("rank %d answers for engine %s", rank, id)
		}
		ports[params[rank]["remote_port"]] = true
	}
	if len(ports) != 2 {
		t.Errorf("the ranks' side channels are at %v, want two ports", ports)
	}
	usage := func(rank int) string { return gauges(t, p, rank, "kv_cache_usage_perc")["kv_cache_usage_perc"] }
	if usage(0) == "0.0" || usage(1) != "0.0" || usage(2) != usage(0) {
		t.Errorf("usage of the ranks: %s, %s, %s; want pins on the first and the last", usage(0), usage(1), usage(2))
	}
	if got := ask(d, "", with(body, object{"kv_transfer_params": params[2]})); got.status != http.StatusOK {
		t.Errorf("decode from rank 2: %d", got.status)
	}
	eventually(t, "only rank 0 has a pin", func() bool { return usage(2) == "0.0" && usage(0) != "0.0" && p.Stats().Pins == 1 })
	for _, rank := range []string{"-1", "3"} {
		got := ask(p, rank, body)
		if detail, _ := got.body["error"].(object); got.status != http.StatusBadRequest || detail["type"] != "BadRequestError" {
			t.Errorf("rank %s: %d %s, want 400", rank, got.status, got.raw)
		}
	}
	if n := strings.Count(string(get(t, p, "/metrics").raw), `num_gpu_blocks="64"`); n != 3 {
		t.Errorf("%d engines tell their blocks, want 3", n)
	}
	assertClean(t, p, d)
}
