package vllmsim

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

func served(c *Config) {
	c.Models, c.Adapters = []string{"first", "second"}, []string{"french", "terse"}
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
	next := then(messages, reply)
	turn(t, p, d, next, reply.params(), object{"model": "terse", "cache_salt": "fresh"})
	expect(t, p, counts{"CorruptReads": 1})
}

func TestDataParallel_EachRankHasItsOwnState(t *testing.T) {
	p := startInstance(t, func(c *Config) { c.DPRanks, c.Blocks = 3, 64 })
	d := startInstance(t, nil)
	ask := func(i *Instance, rank string, body object) answer {
		t.Helper()
		req := newRequest(t, i, wire.PathChat, body)
		req.Header.Set("X-Data-Parallel-Rank", rank)
		return do(t, req)
	}
	body := with(asking(longText), object{"max_tokens": 1})
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
	ask(d, "", with(body, object{"kv_transfer_params": params[2]})).answers(t, http.StatusOK)
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
