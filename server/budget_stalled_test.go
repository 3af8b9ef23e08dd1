package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream/fleet"
)

// An engine that lets requests wait and runs none has no room for the first of them, and those that have their blocks wait behind
// it. Then tickets that are within their share go, too.
func TestBudget_GivesUpMoreWhereAnEngineStands(t *testing.T) {
	const waits = "vllm:num_requests_running 0\nvllm:num_requests_waiting 2\n"
	for between, left := range map[string]int{ // what the engine tells between the first and the last reading, and what is kept
		waits + "vllm:kv_cache_usage_perc 0.9\n":                     1,
		"vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n": 2, // it moves on
		waits + byReason(1, 1):                                       1,
		waits + byReason(0, 2):                                       2, // for KV alone
		waits + "vllm:kv_cache_usage_perc 0.4\n":                     2, // and tells no reasons
	} {
		t.Run(between, func(t *testing.T) {
			clock := &clock{}
			r := newRig(t, setup{
				cfg: func(c *server.Config) { releasing(c); c.PinnedShare = 0.5 }, fleet: func(c *fleet.Config) { c.Now = clock.now }, probeless: true,
			})
			reads := func(told string) {
				clock.ahead.Add(int64(4 * time.Second))
				r.decode[0].tells(func(w http.ResponseWriter, _ *http.Request, _ leg) {
					_, _ = fmt.Fprintf(w, "process_start_time_seconds %s\nvllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"1000\"} 1\n%s", rigIncarnation, rigBlock, told)
				})
				r.engine(r.decode[0]).Refresh(t.Context())
				r.engine(r.prefill[0]).Refresh(t.Context())
				r.server.MakeRoom(t.Context())
			}
			reads("")
			r.wantOK(r.turn("a", 1, true), "miss;")
			r.wantOK(r.turn("b", 1, true), "miss;")
			r.wantStored(2, "yes")
			reads(between)
			reads(between)
			if n := r.store.Len(); n != left {
				t.Errorf("%d tickets are in the store, want %d", n, left)
			}
			if left == 1 {
				r.prefill[0].await(3) // the third leg releases what was given up
				r.prefill[0].awaitEnd(3)
				r.wantOK(r.turn("a", 2, true), "miss;reason=released_over_budget") // of equal tickets the first is the oldest
			}
		})
	}
}

// byReason is what vLLM tells of requests that wait for room, and of those that wait for KV.
func byReason(capacity, deferred int) string {
	return fmt.Sprintf("vllm:num_requests_waiting_by_reason{reason=\"capacity\"} %d\nvllm:num_requests_waiting_by_reason{reason=\"deferred\"} %d\n", capacity, deferred)
}
