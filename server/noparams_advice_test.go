package server_test

import (
	"fmt"
	"strings"
	"testing"

	"carryover/upstream/vllmsim"
)

// The warning knows which vLLM decode runs, how it is configured and what clients ask for. See upstream.WhyNoParams for what it advises.
func TestNoParams_TheWarningKnowsTheVersion(t *testing.T) {
	for _, c := range []struct {
		version, params       string
		bidirectional, stream bool
		with, without         string
	}{
		{vllmsim.VLLM032, vllmsim.ParamsNever, true, true, "install version 1.0 or newer of the plug-in", "bidirectional_kv_xfer"},
		{vllmsim.VLLM033, vllmsim.ParamsNever, true, true, "Rust front end", "install"},
		{vllmsim.VLLM033, vllmsim.ParamsFinish, false, false, "bidirectional_kv_xfer true", "install"},
	} {
		r, _ := stock(t, nil, func(e *vllmsim.Config) {
			e.Version, e.Params, e.Bidirectional = c.version, c.params, c.bidirectional
		})
		for n := range 3 {
			r.wantOK(r.send(ask(fmt.Sprint("c", n), c.stream, "SAY some words.")), "miss;")
		}
		const warning = "sends no kv_transfer_params"
		r.until(func() bool { return r.log.Count(warning) == 1 })
		if line := r.log.Lines(warning)[0]; !strings.Contains(line, `"level":"WARN"`) || !strings.Contains(line, c.version) || !strings.Contains(line, c.with) || strings.Contains(line, c.without) {
			t.Errorf("it says %s, want %s and nothing of %s", line, c.with, c.without)
		}
	}
}
