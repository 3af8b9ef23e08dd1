package server_test

import (
	"fmt"
	"strings"
	"testing"

	"carryover/upstream/vllmsim"
)

// What the warning advises helps with the vLLM that decode runs.
func TestNoParams_TheWarningKnowsTheVersion(t *testing.T) {
	for _, c := range []struct {
		version, params string
		bidirectional   bool
		stream          bool
		with, without   string
	}{
		{vllmsim.VLLM032, vllmsim.ParamsNever, true, true, "install version 1.0 or newer of the plug-in", "bidirectional_kv_xfer"},
		{vllmsim.VLLM033, vllmsim.ParamsFinish, false, true, "bidirectional_kv_xfer true", "install"},
		{vllmsim.VLLM033, vllmsim.ParamsNever, true, true, "Rust front end", "install"},
		{vllmsim.VLLM033, vllmsim.ParamsFinish, false, false, "bidirectional_kv_xfer true", "install"},
		{vllmsim.VLLM032, vllmsim.ParamsNever, false, false, "bidirectional_kv_xfer true", "install"},
	} {
		t.Run(fmt.Sprint(c.version, c.bidirectional, c.stream), func(t *testing.T) {
			r, _ := stock(t, nil, func(e *vllmsim.Config) {
				e.Version, e.Params, e.Bidirectional = c.version, c.params, c.bidirectional
			})
			for n := range 3 {
				body := fmt.Sprintf(`{"model":"m","conversation_id":"c%d","stream":%v,"messages":[{"role":"user","content":"SAY some words."}]}`, n, c.stream)
				r.wantOK(r.sendTo(chatPath, body), "miss;")
			}
			r.until(func() bool { return r.log.count(`"level":"WARN"`, "sends no kv_transfer_params") == 1 })
			for line := range strings.Lines(r.log.String()) {
				if strings.Contains(line, "sends no kv_transfer_params") && (!strings.Contains(line, c.version) || !strings.Contains(line, c.with) || strings.Contains(line, c.without)) {
					t.Errorf("it says %s, want %s and nothing of %s", line, c.with, c.without)
				}
			}
		})
	}
}
