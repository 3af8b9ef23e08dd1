package nixl

import (
	"testing"

	"carryover/sse/rawjson"
)

// Params as vLLM 0.32 answers them on turn 1, spacing as in the wire format.
const (
	handover = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4]],"remote_engine_id":"f2251df7-c3a5-4943-ac00-ee3a507905ee","remote_request_id":"chatcmpl-turn-1-a4741b7d","remote_host":"127.0.0.1","remote_port":5559,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":98,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":0}`
	ticket   = `{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":[[1,2,3,4]],"remote_engine_id":"dc5d3032-7cfb-446f-86df-065c65f07550","remote_request_id":"chatcmpl-turn-1-a953744a","remote_host":"127.0.0.1","remote_port":5659,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":109,"remote_blocks_expiry_time":3959.443628318,"transfer_mode":"pull"}`
)

// with replaces, adds or (value "") removes one member of params.
func with(tb testing.TB, params, name, value string) string {
	tb.Helper()
	o, err := rawjson.ParseObject([]byte(params))
	must(tb, err)
	var changes rawjson.Edits
	if value == "" {
		changes.Remove(name)
	} else {
		changes.Set(name, []byte(value))
	}
	return string(o.Rewrite(changes))
}

func TestParams_TellExpiryAndPrefillCached(t *testing.T) {
	for _, row := range []struct {
		raw     string
		expires bool
		cached  int
	}{
		{handover, false, 0},
		{with(t, handover, "remote_blocks_expiry_time", "1.5"), true, 0},
		{with(t, handover, "remote_prefill_cached_tokens", "96"), false, 96},
		{with(t, handover, "remote_prefill_cached_tokens", "-3"), false, -1},
		{with(t, handover, "remote_prefill_cached_tokens", ""), false, -1},
	} {
		p, err := parseHandover([]byte(row.raw))
		must(t, err)
		if p.expiry != row.expires || p.cached != row.cached {
			t.Errorf("%s: got expires %t, cached %d, want %t, %d", row.raw, p.expiry, p.cached, row.expires, row.cached)
		}
	}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
