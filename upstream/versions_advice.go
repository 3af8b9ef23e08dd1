package upstream

import (
	"carryover/upstream/body"
	"fmt"
)

// WhyNoParams says why answers of that API and form have no kv_transfer_params, and how to change that, for a decode
// instance of a version; "" if that is not known. bare says that whole answers of the same instance were seen to have
// params.
func WhyNoParams(version string, api body.API, stream, bare bool) (why, fix string) {
	const (
		plugIn   = "install version %s or newer of the plug-in in the engine (pip install ./scripts/vllm; VLLM_PLUGINS, where it is set, has to name carryover)"
		keeps    = `bidirectional_kv_xfer true in kv_connector_extra_config of its --kv-transfer-config`
		frontEnd = "start it without vLLM's Rust front end, which leaves them out of streams"
	)
	row, known := AnswersOf(version, api, stream)
	name := "vLLM " + version
	switch {
	case !known && !stream:
		return "whole answers of every vLLM since 0.28 have them where decode keeps its blocks", "start it with " + keeps
	case !known && api == body.Messages:
		return "stock vLLM leaves them out of streams of " + api.Path(), fmt.Sprintf(plugIn, newestPlugIn(api))
	case !known:
		return "stock vLLM before 0.33 leaves them out of streams (vllm-project/vllm#40186)",
			fmt.Sprintf(plugIn, newestPlugIn(api)) + "; vLLM 0.33 has them by itself with " + keeps
	case !row.Params:
		return "stock " + name + " leaves them out of streams of " + api.Path() + " (vllm-project/vllm#40186)", fmt.Sprintf(plugIn, row.PlugIn)
	case stream && bare:
		return name + " has them in streams by itself, and no plug-in adds any", frontEnd
	case stream:
		return name + " has them in streams by itself, and no plug-in adds any", "start it with " + keeps + "; " + frontEnd
	}
	return name + " has them in whole answers by itself, and no plug-in adds any", "start it with " + keeps
}

// newestPlugIn returns the version of the plug-in that adds what streams of an API lack, on every release.
func newestPlugIn(api body.API) (version string) {
	for _, row := range AnswerTable() {
		if row.API == api && row.Stream {
			version = max(version, row.PlugIn)
		}
	}
	return version
}
