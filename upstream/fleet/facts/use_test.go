package facts

import (
	"fmt"
	"strings"
	"testing"
)

func TestReadMetrics_TellsTheLoad(t *testing.T) {
	const ranks = `vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="200",kv_cache_size_tokens="3000"} 1.0
`
	for _, row := range []struct {
		name, text, rank string
		want             Use
	}{
		{"recorded", recordedMetrics(t), "", Use{KVTokens: 262144, reasons: true}},
		{"all ranks", ranks, "", Use{Running: 7, Waiting: 3, Short: 2, Usage: 0.5, KVTokens: 4600, reasons: true}},
		{"rank 0", ranks, "0", Use{Running: 3, Waiting: 1, Short: 1, Usage: 0.25, KVTokens: 1600}},
		{"rank 1", ranks, "1", Use{Running: 4, Waiting: 2, Short: 2, Usage: 0.5, KVTokens: 3000, reasons: true}},
		{"waiting for KV", reasons(2, 3), "", Use{Waiting: 5, Short: 2, reasons: true}},
		{"waiting for KV alone", reasons(0, 3), "0", Use{Waiting: 3, reasons: true}},
		{"waiting on another rank", reasons(2, 3), "1", Use{}},
		{"a rank that is not there", ranks, "2", Use{}},
		{"tokens of all ranks", "vllm:generation_tokens_total{engine=\"0\"} 5.0\nvllm:generation_tokens_total{engine=\"1\"} 2.0\nvllm:generation_tokens_created 7\n", "", Use{Generated: 7}},
		{"no labels", "vllm:num_requests_running 2\n", "", Use{Running: 2}},
		{"no labels with a rank", "vllm:num_requests_running 2\n", "0", Use{}},
		{"nothing", "", "", Use{}},
		{"no numbers", "vllm:num_requests_running x\nvllm:num_requests_waiting NaN\nvllm:kv_cache_usage_perc +Inf\n", "", Use{}},
		{"negative", "vllm:num_requests_running -2\nvllm:kv_cache_usage_perc -0.5\n", "", Use{}},
		{"huge", strings.Repeat("vllm:num_requests_running 1e300\n", 3) + "vllm:kv_cache_usage_perc 7\n", "", Use{Running: MaxTold, Usage: 1}},
		{"malformed", "vllm:num_requests_running{engine=\"0\" 2\nvllm:num_requests_waiting 1\n", "", Use{Waiting: 1, Short: 1}},
		{"other names", "vllm:num_requests_running_total 5\nnum_requests_running 5\n", "", Use{}},
		{"sizes without blocks", "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n", "", Use{}},
		{"blocks without a size", "vllm:cache_config_info{num_gpu_blocks=\"16\"} 1\n", "", Use{}},
		{"huge cache", strings.Repeat("vllm:cache_config_info{kv_cache_size_tokens=\"1099511627776\"} 1\n", 3), "", Use{KVTokens: maxTokens}},
		{"beyond any cache", "vllm:cache_config_info{kv_cache_size_tokens=\"99999999999999999999\"} 1\n", "", Use{}},
	} {
		if got, err := ReadMetrics([]byte(row.text), row.rank); err != nil || got.Use != row.want {
			t.Errorf("%s: got %+v, %v, want %+v", row.name, got.Use, err, row.want)
		}
	}
}

// reasons is what an engine tells of requests that wait for room, and of those that wait for KV.
func reasons(capacity, deferred int) string {
	const labels = `{engine="0",model_name="m"`
	return fmt.Sprintf("vllm:num_requests_waiting%s} %d.0\nvllm:num_requests_waiting_by_reason%s,reason=\"capacity\"} %d.0\n"+
		"vllm:num_requests_waiting_by_reason%s,reason=\"deferred\"} %d.0\n", labels, capacity+deferred, labels, capacity, labels, deferred)
}
